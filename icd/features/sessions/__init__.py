"""Sessions of agents: when they ran, what they work on, and how many tokens they used.

A session is named by its agent, and is known in a project: one that works in two projects has a
row in each.  What it works on, its attribution, is kept apart from it, because scripts tell it also
of sessions that never said that they started.  Both are in store.py; verbs.py gives them names.
"""
