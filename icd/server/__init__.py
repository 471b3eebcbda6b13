"""The daemon: one process per user that serves all projects, and the only asynchronous code.

Everything below this package is synchronous, and most of a call is SQLite.  So the event loop only
moves bytes and queues calls; each open database has one thread, which takes all calls that wait and
runs them as one batch in one transaction (ADR 2).  Callers that arrive together share a
commit.

main.py has the whole life on one screen: own the socket, start, serve, drain, leave.  Behind it,
`net` turns bytes into calls and answers into bytes, `stores` runs the calls, `subscriptions`
carries what goes on, `workers` acts after commits, and `metrics` counts.  lifecycle.py obeys
signals; a reload replaces the code of the running process by exec and hands the sockets over, so
that no call is lost (ADR 9).  Every limit has its reason in limits.py.

A database that hangs holds up its own callers only: the loop touches no file of a project, and a
call that waits for it is answered soon after its deadline at the latest.  What goes wrong in one
session ends that session and no other.
"""
