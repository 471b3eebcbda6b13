"""What a shell sources: the library for bash hooks, and scripts for completion.

`lib-path` prints where this installation has lib-intercore.sh.  `completion` prints a script made
from the table of verbs (`icd.app.completion`); it calls no program when TAB is pressed.  Neither
needs a database or a daemon.
"""
