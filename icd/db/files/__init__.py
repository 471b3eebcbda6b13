"""The files beside a database: what SQLite keeps there, who may touch them, what was lost.

In WAL mode a database is three files, and SQLite looks at the names of them once, when it opens
them.  If one is removed or replaced afterwards, SQLite goes on, says that commits succeeded, and
the next process does not see them.

So each process notes in the lock file which files it uses and how far the log had come (usage.py).
Under the lock it compares the note, the names and what it has open (companions.py), reading log and
index itself.  lost.py acts on a difference: recover what is still open, keep a log that may hold
the only copy of a commit under another name, and report what is lost, once.

A log is never deleted while it may hold such a copy.  Descriptors of SQLite are looked up and used
here, and never closed.
"""
