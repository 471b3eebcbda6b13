"""What scanners have found: stored once, scored, searched, ranked, and at last forgotten.

A scanner submits what it sees, again and again.  So a submission is first compared with what is
there: the same id of the same source is a duplicate, and an embedding that is similar enough to
another of its source is recorded as an event and not stored.  What is stored has a score that
decays, until the discovery is promoted to a bead, dismissed, or deleted.

Two ideas carry the package.  Scores and weights are integers in millionths, so sums depend on no
order and a threshold means the same to every caller.  Similarity is the exact cosine, rounded once:
a fast product finds the candidates, and only these are computed exactly, so a search in the
daemon's memory and a scan of the file give the same answer (ADR 14).

Read store.py and lifecycle.py for the rows, then similarity.py for the arithmetic.  numpy is an
extra (`intercore[vectors]`), and is loaded only by a call that compares vectors.  Every change of a
row and its event are one transaction.
"""
