"""The verbs of runs, in files by what they are about; rules and SQL are one package above.

`VERBS` in runs.py is the list of all verbs of `run`, in the order of the help, and takes in the
lists of its neighbours; `run agent` and `run artifact` have lists of their own.  Most verbs are one
method.  Those that touch files or processes of the caller do so in its own process, before or after
the call: the digest of an artifact, the agents that an advance starts, the processes that a
rollback ends.
"""
