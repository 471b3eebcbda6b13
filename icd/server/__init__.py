"""The daemon: the only asynchronous code, and the only one that knows sockets."""
