"""Values that several nouns share: names, payloads, secrets, processes, and results.

Each module judges or makes one kind of value, without a database and mostly without a file: which
names are allowed, which JSON is stored, what looks like a secret and is refused, whether a process
is still the one that was noted, how a time is shown.

The checks of a payload run in a fixed order, so the same payload always earns the same sentence.  A
secret that was recognised is named by its kind and never repeated.
"""
