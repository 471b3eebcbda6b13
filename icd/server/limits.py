"""Every limit of the daemon, with its reason."""

# A payload is at most 1 MiB; escaping can double it, and an envelope goes around it.
MESSAGE_BYTES = 4 * 1024 * 1024
# While a message is being answered, this much more of the same peer is read ahead.
AHEAD_BYTES = 256 * 1024
# A message of which only a part has arrived may wait this long for the rest.
PARTIAL_SECONDS = 30.0
# All incomplete messages together: a thousand slow clients must not fill the memory.
PARTIAL_BYTES = 64 * 1024 * 1024
# Fields of an argv frame; more arguments than that do not fit into a message anyway.
FIELDS = 500_000
# Requests that are answered in one go, lines of a burst or items of a batch.
REQUESTS = 128
# When the answers to requests of one go hold more than this, they are sent, and the rest is carried
# out when the peer has read them.
PIECE_CHARACTERS = 1024 * 1024
# A reply is given to the kernel in parts of this size; what does not fit is kept once, as it is.
PART_BYTES = 64 * 1024
# Replies that were not read, of all peers together; beyond it the peers that have not read for the
# longest time are dropped.  With what is being computed, the daemon stays below 200 MB.
UNREAD_BYTES = 32 * 1024 * 1024
# Calls in one batch; time usually ends a batch first.
BATCH_CALLS = 512
# Calls that may wait for one database before new ones are told that it is overloaded.
WAITING_CALLS = 20_000
# Connections at once; beyond it new ones are closed unread, which clients take for "absent".
SESSIONS = 4096
# Connections waiting to be accepted.
BACKLOG = 1024
# What is being executed when we are told to stop may take this long.
DRAIN_SECONDS = 5.0
# A call whose database hangs is answered this long after its deadline.
GRACE_SECONDS = 0.25
# A thread that is longer at one thing hangs: a caller with the default deadline gets no answer.
HUNG_SECONDS = 6.0
# A database that was used within the last REST_SECONDS is looked at this often, any other one every
# REST_SECONDS: it may have been deleted or replaced, or written to without the daemon.
# A hundred databases at rest must not be noticed.
LOOK_SECONDS = 5.0
REST_SECONDS = 60.0
# Threads that look for the database of the same caller; more of them would find the same.
LOOKUPS_AT_ONCE = 4
# All threads that look for databases: a hung mount keeps its own.
LOOKUPS = 1000
# Remembered answers to "which database does this directory mean"; each is checked at every use.
KNOWN_PLACES = 4096
# Threads for directories of locks: there is one such directory, unless callers name others.
LANES = 8
# A thread that is longer at one step of a lock hangs: callers do without it.
LANE_SECONDS = 1.0
# A lock that its caller did not hear of is removed; a stopped process may be in the way for 2 s.
UNDO_TRIES = 5
# Requests larger than this are parsed and checked in a thread, so that the loop stays responsive.
LARGE_BYTES = 64 * 1024
# Between two writes of a mirrored file: readers do not look more often.
GAP_SECONDS = 0.1
# Between two questions of a stream: many changes at once are one piece of news.
WATCH_GAP_SECONDS = 0.05
# A database with watchers is looked at this often: other processes may write to it without us, and
# the watchers are to hear of it within a second.
WATCH_LOOK_SECONDS = 0.5
# Between two looks at the log for those who follow it: under load, events are read several at once.
FEED_GAP_SECONDS = 0.001
# A watcher that is sent what it asked for, and reads nothing for this long, is dropped.
SLOW_SECONDS = 5.0
# It may still read what it was sent, and why it was dropped, for this long.
FAREWELL_SECONDS = 30.0
# A file that could not be written is tried again after this time.
RETRY_SECONDS = 5.0
# A database that is not trusted, and has rows that would be mirrored, is looked at this often: a
# person who accepts it wants to see files soon.
PERMIT_SECONDS = 5.0
# Mirrors may take this long to write their last files when the daemon stops.
FLUSH_SECONDS = 2.0
# Hooks of all projects that run at once: they share the machine with those who wait for us.
HOOKS_AT_ONCE = 4
# Hooks that could not be run, or that another process is running, are tried again after this time;
# and a project without hooks is looked at no more often.
HOOK_RETRY_SECONDS = 0.5
# A hook that was trusted, and was changed since, is looked at this often: once it is as it was, it
# gets what it missed.
HOOK_LOOK_SECONDS = 2.0
# Before the daemon stops or reloads, hooks that run may take this long to end: their own limit, and
# a second for what is killed then.
HOOK_REST_SECONDS = 6.0
# Between two looks at the dispatches of a database: many events at once are one reason to look.
OBSERVE_GAP_SECONDS = 0.1
# Processes of which the kernel cannot tell us that they ended are looked at this often.
OBSERVE_SECONDS = 5.0
# Processes of one database of which it does, each by a descriptor; the others are looked at.
OBSERVED_PROCESSES = 256
# Replies that a slow peer has not read are remembered; more than that are put together.
WRITES = 64
# While descriptors or memory run short, code that is still to be loaded waits this long.
SHORTAGE_SECONDS = 1.0
# The daemon looks this often whether its socket is still where clients look for it.
PLACE_SECONDS = 2.0
# A daemon that systemd starts waits this long for one that was started by hand to notice it and
# leave, and looks this often.
TAKEOVER_SECONDS = 10.0
TAKEOVER_PAUSE_SECONDS = 0.05
# An owner that has just begun is asked for its pid so often, with the same pause.
OWNER_LOOKS = 20
# New code may take this long to show that it can run before a reload is given up.
PREFLIGHT_SECONDS = 30.0
# A reload waits this long for calls that are being executed, while new ones wait in their sockets:
# a hook's whole deadline is a few times as long.
QUIET_SECONDS = 1.0
# If they take longer, all callers are served again, and the reload tries again after this time, so
# often.
RELOAD_PAUSE_SECONDS = 1.0
RELOAD_ATTEMPTS = 5
# Descriptors of one open database: the file, its log, the log's index, and the lock.
STORE_DESCRIPTORS = 4
# When fewer than this are free, a database that is not used is closed before another is opened: a
# few connections, and what is opened for a moment, must still find some.
SPARE_DESCRIPTORS = 24
# A database that is closed for that may have to wait for its lock this long; then another is tried.
ROOM_SECONDS = 1.0
# What strangers can make the daemon log is logged this often, with the number of those left out.
STRANGERS_SECONDS = 60.0
