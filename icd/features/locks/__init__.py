"""Locks between processes, as directories: without a database, without a daemon."""
