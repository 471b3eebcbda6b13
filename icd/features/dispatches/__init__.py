"""Processes of agents: started for a caller, watched to their end, and recorded.

A daemon must not start an agent, because an agent needs the directory, environment, limits and
sandbox of its caller.  A caller must not wait for one, because agents run for hours.  So `dispatch
spawn` works in the caller's process and leaves a runner behind, a small process that has one agent
as its child and records how it ended (ADR 12).

The row comes before the process: it is created, then the runner starts the agent, then the start is
recorded.  A crash at any point leaves a row that tells what happened, and `poll` or the daemon
finds out what no other process could record.  store.py holds the table of statuses, spawn.py the
start, poll.py the conclusions from what can still be seen.

Two rules hold throughout.  The first end that is recorded of a dispatch stays its end.  And a
process is known by the moment of its start, its boot and its namespace beside its number, which the
kernel gives away again: what these leave open counts as alive, and no signal goes to a process that
they do not confirm.
"""
