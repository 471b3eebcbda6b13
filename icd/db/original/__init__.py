"""Databases of the original Go program, taken over with all that intercore knows of them.

Up to its schema v9 such a database is upgraded in place, inside the transaction of our own
migrations: tables of the original are renamed out of the way, ours are made, and rows are copied.
A later one is taken over only on request (adopt.py): ours is built beside it from the tables and
columns that are known by name, and put in its place by one rename.

The original enforced few types, and some of its upgrades left columns out.  So every value is read
with a default for what is missing or makes no sense, and no row can make an upgrade fail.  Before
anything is changed there is a backup, or the old file is kept under another name.
"""
