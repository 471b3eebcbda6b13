"""What all verbs share: how one is declared, called, run and shown.

A noun declares its verbs as a literal list of rows (verb.py).  From a row this package makes the
method that programs call, the command that people type, and everything that describes them: help,
completion, manual pages, OpenRPC.  A noun writes no parser, begins no transaction and maps no
error.

A command line takes three steps.  `plan` turns the words and the caller's surroundings, a `World`,
into a `Call`, and does nothing yet; it may also answer that it needs the caller's input first.
`run_batch` runs calls, all that wait for one database in one transaction.  `finish` turns the
`Answer` into bytes and an exit status.  A JSON-RPC request has its parameters already, and takes
the middle step only.  So verb.py, planner.py and dispatch.py, in this order, tell the whole way.

The daemon runs command lines of other processes.  Therefore nothing here reads an environment
variable or asks for the current directory: everything about a caller comes in its `World`.  Files
and terminals are touched only by what runs in the caller's own process.
"""
