"""The verbs, as methods.  Made by `make docs` from the rows of the verbs: do not edit."""
