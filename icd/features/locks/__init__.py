"""Locks between processes, as directories: without a database, without a daemon.

A lock must work without a database, and scripts of the original know it as a directory.  So a lock
is held while `BASE/NAME/SCOPE` exists, and owner.json in it names its holder.

The difficult part is breaking the lock of a process that died without ever breaking a fresh one.
Two ideas do it: a lock appears and disappears by one rename, complete; and it is removed only under
a flock of the directory above it, after its owner was read under that same flock.  store.py has the
four rules and why they suffice.  lib-intercore.sh keeps the same rules for subshells, so a change
here is a change there.

A holder counts as dead only if that is certain: what cannot be told is alive.
"""
