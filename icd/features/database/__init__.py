"""The database file itself: create, check, shrink, back up, restore, export and import it.

Other nouns work on rows, these verbs on the file.  What cannot be part of a transaction, such as a
backup, a check or a vacuum, runs alone, under the lock, and is given a `Whole` instead of a
`Context`; what it does to files is in `icd.db`.

An export is a file of JSON lines, one per row, between a header and an end that prove it complete.
The columns of a line are read from the schema, and declared nowhere else.  An import is one
transaction, and idempotent: taking in the same lines twice changes nothing the second time.  Start
with verbs.py; import_.py states which of two rows wins.

Files that a caller names are opened in the caller's own process, never in the daemon
(ADR 8).
"""
