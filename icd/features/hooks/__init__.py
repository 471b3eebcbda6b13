"""Executables of a project that run after a commit, if the user trusts them."""
