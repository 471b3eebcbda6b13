"""Small JSON documents by key and scope, with a version, an optional expiry, and their writer.

It is the shared memory of hooks: a key says what a document is, a scope whose it is, usually a
session.  A payload is stored as it was written, after it was checked for size, form and secrets.

Versions come from one counter for the whole table, so a version never repeats, not even after a
deletion, and comparing versions is enough for compare-and-set and for watching.  A row whose time
has passed behaves as if it had never been written, whether or not it was deleted yet.

store.py has the operations.  watch.py is told only to look again, and compares the versions
that a watcher has with those that are there, so a slow watcher misses intermediate values and never
the last one.
"""
