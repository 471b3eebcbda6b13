"""The command line as pure functions: argv -> call -> text and exit code.

No I/O happens here, except in errands, which only the caller's own process runs.
"""
