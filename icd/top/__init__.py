"""`icctl top`: a live view of what the agents of a user's projects do.

    verbs      the row of the command; loads the rest only when it runs
    projects   which projects are meant, and what each is called
    rows       a tab, a line of it, and how what it shows is asked for
    work       the tabs of what is worked on: events, runs, dispatches
    held       those of what is claimed: sentinels, leases, reservations, locks
    tabs       the others, and all of them in order
    details    what is shown of one row
    head       the figures of the daemon, by two of its reports
    feed       the streams of the daemon, and what they brought; bounded, and never in a hurry
    once       one screen for a script; asks, prints, and is done
    page       what is on the screen, as textual draws it
    listing    a list that draws only what is seen
    dialogs    a detail, a question, the help

What is shown comes from the tables that `icctl` prints (`icd.app.human`), so control characters
and markup from data never reach the terminal.  Only `page`, `listing` and `dialogs` know textual,
which is an extra; only `feed` and these are asynchronous.
"""
