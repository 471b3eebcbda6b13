"""A project's database: found, locked, judged, opened, migrated, and kept safe.

SQLite keeps its promises as long as its files are left alone.  Ours may be deleted, replaced or
restored under a running daemon, come from a stranger with a clone, and be used with a SQLite before
3.51.3, in which two connections at once can damage it.  This package makes the promise that callers
rely on: what was acknowledged is there, or its loss is told before the next acknowledgement.

One idea carries most of it: an exclusive flock on a file beside the database (lock.py).  Every
process of ours takes it for every batch, looks at the files while it holds it, and compares them
with those that it has open.  A host gets its connection from `Database`, in which no row is used
before the files beside the database and its schema were judged.

Read paths.py, lock.py and database.py.  Rows become structs with checked types (rows.py), so what
is above this package can rely on them.  In a process that has a database open, nothing but SQLite
opens or closes that file, because POSIX would drop SQLite's locks with it (ADR 4).
"""
