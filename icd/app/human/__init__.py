"""What a person sees on a terminal; what a pipe gets is made by `icd.app.render`.

text.py     how wide text is on a screen, how it is cut, and what of it may be shown at all
kinds.py    how a value looks: a state, an age, a score
screen.py   lists and cards, as the rows of verbs declare them

Loaded for the first caller with a terminal, never for a pipe.  `icd.app.verb` has what rows
declare, `Table`, `Card` and `Column`; ADR 25 says why no library does this.
"""
