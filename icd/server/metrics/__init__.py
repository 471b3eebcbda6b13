"""What the daemon counts, and the answers that it gives about itself.

counters.py counts calls, times and failures in constant memory; to add a call costs about a
microsecond, and figures are worked out when a report is asked for.  status.py puts the report
together, from memory and from two small files beside the socket.  It touches no file of a project,
so `icctl status` answers while a disk hangs.  A payload or an argument of a caller is never
repeated in a report.
"""
