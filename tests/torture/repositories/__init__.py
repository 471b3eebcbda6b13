"""Repositories of strangers: each is a directory as `git clone` or `tar` would leave it.

`catalogue.every()` names them all; each is a function of a `Clone`, deterministic in its seed.
"""
