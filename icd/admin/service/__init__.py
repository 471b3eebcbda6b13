"""The daemon as a service of the user's systemd, or in the background without one.

systemd.py makes the texts of the units, compares them with what is there, and asks systemd through
its program.  To decide what has to be done is a function of that alone, apart from doing it, so a
dry run and the real one share the decision, and a second run finds nothing to do.  verbs.py has
the commands, and reads the journal.

A unit file without our first line belongs to another author, and is neither changed nor removed.

detach.py starts a daemon that has nothing of its starter; background.py starts and stops one for a
person, and a hook ensures that there is one.  No other command starts a daemon.
"""
