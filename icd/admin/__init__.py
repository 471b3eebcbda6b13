"""Programs of the client for the person who looks after a machine: doctor and service.

They keep nothing in a database: one finds out what is wrong on this machine, the other has systemd
start the daemon, or starts it.  Both run in the caller's own process, with the caller's rights and
environment, and look at the daemon from outside; only a reload is a request to it.  Their commands
are rows like all others, in verbs.py of each package.
"""
