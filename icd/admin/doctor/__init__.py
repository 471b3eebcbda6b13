"""What is wrong here, and what to do about it.

Runs in the caller's own process, as the caller.  Looks at files, locks and sockets; changes nothing
unless it is told to repair, and then only what `REPAIRS` of checks.py lists.

A check is a row of a table, and its look a generator of findings; a finding says what is so, how
bad it is, what a person can do, and perhaps which repair would help.  What goes wrong during a look
is a finding, too, and the next look has its turn.

A disk that hangs is among the things to be found, and a process that touches it cannot be
interrupted.  So a child process takes the looks of each section and is left behind when its
time is over: the report always ends, and names what did not answer.  Read context.py for what a
check is given, then checks.py.
"""
