"""hook: what an agent's hook runs through, and what it may answer its agent.

`icctl hook [OPTIONS] -- COMMAND` reads the event that an agent sends (event.py), decides whether
COMMAND runs (run.py), and runs it with the same stdin.  The native client does the same
(icctl/hook.c), and hands over what is rare.

A failure of ours never blocks an agent, to which exit status 2 means "blocked": it is 0 and a line
in a log, or 2 where `--fail-closed` asked for it; and 1 if the command line is wrong.
"""
