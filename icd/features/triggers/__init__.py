"""Programs of a project that run after a commit, one event at a time, if the user trusts them.

They are called hooks where a name could not change: files, settings, errors, methods.
A project may come from a stranger, so what lies in `.clavain/hooks` is no permission to run it.  To
trust a hook is to keep a copy of it in the home directory; the copy is what runs, and only while
the file in the project still holds the same bytes.  No row of a database and no file of a project
can grant that (ADR 10).

A hook has a position in the log, like a consumer.  A host takes the next event, notes that its
delivery starts, runs the program, and notes that it is done; after a crash in between the same
event comes again, and is marked.  Either host runs hooks: the daemon in `icd.server.workers`, a
direct call before it leaves.  A lock in the home directory keeps all but one of them away from a
project.

Read store.py for the order, trust.py for the permission, process.py for the process.  A hook that
fails fails no call: the failure is an event, and events of that source go to no hook.
"""
