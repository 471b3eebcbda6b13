"""guard: a pre-commit hook that refuses a commit of files that another session holds.

hook_file.py puts the hook where git looks for it, and takes it away again; verbs.py has the
commands, and judges a commit.  The hook itself is a few lines of sh around `icctl guard check`:
only its exit status 1 refuses a commit, whatever else is wrong lets it pass.
"""
