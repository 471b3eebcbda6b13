"""Fast shared state, throttles, locks and events for the hooks of AI coding agents.

Hooks are short programs.  Many of them start at the same moment, each lasts for milliseconds, and
they have to agree on small facts: whether a reminder was shown already, which agent works on what.
Every project keeps such facts in one SQLite file.  One daemon per user holds these files open and
answers over a Unix socket, so that a hook pays for one round trip and not for opening a database.

A verb, such as `sentinel check`, is one synchronous function of a connection, parameters and the
time.  Two hosts run it: the daemon in `icd.server`, and the client itself, in `icctl`, where there
is no daemon.  Both use the same planner and the same dispatcher, so a command behaves the same in
either; only what is about the daemon itself needs one.

Imports point downward, and a contract in pyproject.toml keeps them so: server, admin, features,
app, values, db, config.  To read the program, take app/verb.py for the row of a verb,
features/sentinels for a whole noun, and app/dispatch.py for the transaction.  No caller is told
that a write was done before its COMMIT has returned.

The client imports this module for every call, so it holds the version and nothing else.
"""

__version__ = "0.5.0"
