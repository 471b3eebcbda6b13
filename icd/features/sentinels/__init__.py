"""Rate limiters: of all callers within an interval, exactly one is told `allowed`.

A hook asks on every event and should act on few.  One SQL statement both decides and records the
claim, so there is no moment between a look and a write in which a second caller could win.

An interval of 0 claims once and for all.  A clock that steps back delays the next claim by at most
one interval after the first check that sees it.  A claim that a client retries under the same id is
told `allowed` again; the id is kept in the row itself, which costs a third of what
`icd.app.idempotency` would.  The noun is small and complete, and the model for the others.
"""
