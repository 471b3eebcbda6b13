"""Reservations of files: who works on what, by path or pattern, until when.

A reservation belongs to an owner, usually a session, and covers a path or a glob within a scope.
Two of different owners are in each other's way if one of them is exclusive and some path matches
both patterns; globs.py decides that exactly.  It keeps no process from writing a file: hooks, and
the guard of commits, ask before they do.

store.py holds the rules, names.py says which file a word means, verbs.py gives it names and texts.
"""
