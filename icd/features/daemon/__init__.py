"""What the daemon says about itself: ping, status, metrics, and the methods of its protocol.

These methods have no `run` on a database: the daemon itself answers them.  Ping and status come
from memory (`icd.server.metrics`), so a daemon whose databases are busy or hang is never taken for
dead.  Without a daemon there is nothing to tell, which is an error.

report.py declares the report that `icd.status` answers; the daemon's counters keep parts of it as
these very structs.  The text for people and the OpenMetrics text are made from the same report, so
the three cannot disagree.
"""
