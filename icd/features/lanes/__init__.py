"""Lanes: streams of work, and the issues that each of them holds.

A lane is a name with a set of issues.  What an issue is, and whether it is open, another program
knows: it says which issues are in a lane (`sync`), and one that is not named any more has left it.
Rules and SQL are in store.py; verbs.py gives them names.
"""
