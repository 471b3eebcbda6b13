"""Claims of work that outlive processes: an owner, a deadline, and a fencing token.

An agent's work passes through many short processes, so a lock that ends with its process is of no
use to it.  A lease belongs to a name, usually a session, and ends at a moment.

Time alone cannot keep a late holder out, so every new claim gets a token that is larger than all
before it; what the lease guards can refuse smaller ones.  A holder that renews in time keeps its
token, and a deadline that has passed is final, even if no other owner came.  All of it is in
store.py; verbs.py gives it names and texts.
"""
