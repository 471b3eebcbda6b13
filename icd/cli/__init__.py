"""The command line as pure functions: argv -> call -> text and exit code.  No I/O happens here."""
