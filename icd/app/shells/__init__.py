"""Completion scripts, one module a shell; each is a text made of tables, and calls nobody.

A script that asked the program would start Python at every TAB where no daemon runs, and would
know no more than these tables do: keys, scopes and names are the caller's own words.
"""
