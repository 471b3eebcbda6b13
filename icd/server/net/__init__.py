"""From a listening socket to calls, and from answers to bytes that a peer reads.

Peers speak one of two languages, told apart by their first byte: argv frames, in which the client
forwards a command line, and JSON-RPC in lines.  A connection is accepted, its bytes are cut into
messages, each message is carried out, and the reply waits in an outbox until the peer has read it.
session.py is the machine that drives this for one connection, handler.py carries out what a message
asks.

A session is made of callbacks, without a task of its own: a call then costs the loop one event
instead of five (ADR 2).  It answers one message at a time, in order, and does not read from
a peer that does not read its replies.  What all peers together have yet to read is bounded: beyond
a limit, those that have not read for the longest time are dropped.

socket_claim.py decides who is the daemon: only the holder of the owner lock may remove a stale
socket or bind the path.
"""
