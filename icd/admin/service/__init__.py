"""The daemon as a service of the user's systemd: install, remove, examine and reload it.

units.py makes the texts of the units and compares them with what is there.  To decide what has to
be done is a function of that alone, apart from doing it, so a dry run and the real one share the
decision, and a second run finds nothing to do.  systemctl.py asks systemd and the journal through
their programs.  verbs.py puts the two together.

A unit file without our first line belongs to another author, and is neither changed nor removed.
"""
