"""The client that hooks run: forward a command line to the daemon, print what comes back.

Every hook pays for a start of this program, so it does as little as it can.  client.c is the
program that is installed where a C compiler was; client.py is the slower fallback in Python, and
takes over what the other cannot do.  Neither knows the commands beyond a few flags: the daemon
parses them, and answers with an exit status and bytes that are ready to print.

direct.py runs a command in this process, with the code of the daemon, on the same file and under
the same lock: if the caller or the daemon wants it so, or if no daemon can have executed it.  A
reply that was lost is asked for again under the same id, so that a write takes effect once.

stdin belongs to the hook: it is read only when the daemon asks for it.  Python loads this file at
every start of the client, so it stays without code.
"""
