"""The log: everything that happened in a project, in one sequence, and how far it was read.

Nouns append an event in the transaction of the change that it describes, so both are there or
neither is.  Its order is the sequence number, which is never given twice; clocks play no part in
it.  Readers ask for what comes after a number, and a cursor remembers that number for a consumer.

store.py appends and reads, cursors.py keeps positions, retention.py forgets.  Only a beginning of
the log is ever forgotten, and a reader whose place lies before what is left is told so; nothing
goes that a durable cursor or a hook has yet to get, unless that is asked for.  `tail`, `watch` and
`wait` are three ways to hear of what is new, each in a file of its own.

A consumer's place moves when it acknowledges, never when events are merely sent to it: an event may
come twice, and none is missed (ADR 11).
"""
