"""One package per noun: what belongs to `icctl NOUN VERB` stands under its noun.

Most nouns have two files.  store.py holds the SQL and the rules, as functions of a connection,
parameters and the time; it returns the structs that go over the wire, and knows nothing of
`icd.app`.  verbs.py holds parameters, results and rendering, and ends with `VERBS`, one row per
verb, where a reader sees the whole noun at once.  A larger noun has more files, called after what
they do or after the verb that people type.  `icd.app.registry` names the lists; a noun is loaded
when it is first used.

A function that takes a connection begins no transaction, and is given the time: the dispatcher sees
to both, once per call.  So such functions compose across nouns.  A rollback moves a run, marks its
artifacts, cancels its dispatches and appends the events of all that, or does nothing at all.

The daemon opens no file that a caller names, and starts no program for one.  Verbs that do so run
in the caller's own process, and call methods of the database from there.  Read sentinels first,
then state and events: many other nouns append to that log.
"""
