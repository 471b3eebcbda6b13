"""Runs: what agents work on, phase by phase, from a goal to an end.

A run has a status and a phase.  Its chain of phases is fixed when it is created; it moves forward
along it, past phases that are skipped, and backward only by a rollback.  A run may claim a scope,
and of all active runs of a project at most one has the same scope: creating a run is also how work
is claimed.

The machine is a table: `MAY` in transitions.py says what may be done in which status.  A transition
reads the run, decides, changes the row with one statement that compares status and phase with what
was read, and appends its event.  Of two transitions at once the first to commit wins, and the other
is told that it came too late.  Folding the events of a run gives its row.

Read phases.py, store.py and transitions.py in this order; to create a run and to roll it back are
transitions in files of their own.  Agents and artifacts are rows that belong to a run; the
processes of agents are the noun `dispatches`.  An advance or a rollback changes rows only; the
caller's own process then starts or ends what they say.
"""
