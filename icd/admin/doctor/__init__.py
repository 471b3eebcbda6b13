"""What is wrong here, and what to do about it.

Runs in the caller's own process, as the caller.  Looks at files, locks and sockets; changes nothing
unless it is told to repair, and then only what `REPAIRS` of checks.py lists.
"""
