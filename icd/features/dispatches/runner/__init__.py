"""The runner: a small process that starts one agent, waits for it, and records how it ended.

It lives as long as its agent, and there may be many, so its modules import nothing but each other,
`icd.procfs` and what is built in: with `json` and `signal`, and the `enum` and `re` that these
bring, each runner would take 1.1 MB more (of 3.1 MB of its own) and 7 ms longer to start (of 13).

main.py detaches it from the caller, so that neither a closed terminal nor an ended shell takes it
away.  agent.py then waits for whatever comes first: the agent's own end, the end of its time, or
the order to end it.  record.py writes the end to a spool file before it asks for the database, so
that another process can still record it if the runner is killed.
"""

TYPE_CHECKING = False  # nor `typing`
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

# Python ignores these, and a program that it starts should not.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

__all__ = ["IGNORED_BY_PYTHON", "signal"]
