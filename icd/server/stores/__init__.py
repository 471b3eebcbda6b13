"""One store per open database: a queue of calls, and the thread that answers them.

The registry finds which file a caller means and keeps one `Store` for it.  A store collects calls
while its thread works, hands it all of them as the next batch, and gives the answers out after the
commit.  The thread belongs to aiosqlite; a whole batch is one hop to it, not one hop per statement.

Read registry.py, store.py and db_thread.py.  After a commit, listeners are told to look again,
never what changed, so nothing is lost when many changes come at once.  Between calls the thread
prunes and measures its database, and one that is idle for long is closed.  Searches compute in
another thread, so that megabytes of arithmetic hold up no caller.

A single task feeds the thread, one batch at a time, and the file lock is free in between: direct
calls get their turn.  A call is answered once, by the thread or, if that hangs, at its deadline.
"""
