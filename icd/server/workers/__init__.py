"""What the daemon does by itself after commits: run hooks, mirror rows, watch agents.

Each worker is attached to a store when its database is opened, and lives as long as it.  All are
level-triggered: a commit only says that there may be something to do, and the worker finds out what
from rows, positions and files.  So nothing is lost if the daemon is killed; the next one finds the
same work.

Files and processes may hang, so they are handled in threads of their own (threads.py), never in the
loop and never in the thread of a database.  A worker asks its questions of the database like any
caller, but in the background: they do not keep it open by themselves.

A failure here is logged or counted, and fails no call.  Effects outside the database need the
user's trust, which is looked up again before each of them.
"""
