"""What a statusline shows about one session, read in one call.

Statuslines are drawn often, so one read gathers six kinds of rows of state and the active run.
Payloads belong to other programs and may hold anything: a field that cannot be used is left empty,
and none makes the call fail.  store.py reads, verbs.py prints text, shell assignments, columns or
JSON.
"""
