"""Streams: answers that go on, for commands that follow and for typed watchers.

All of them are one loop: listen for changes, ask the database, send what is new, wait.  Listening
comes before asking, so a change between the two is never missed.  A `Subscription` says what is
asked and what is sent; the loop in stream.py is the same for a command such as `state watch`, for a
typed JSON-RPC watch and for the log.

Watchers of the log want the same events, so event_fanout.py reads what is new once for all of them.
One that falls behind leaves the group and reads on for itself, from its own position.

A peer that does not read never delays a database or another peer.
"""
