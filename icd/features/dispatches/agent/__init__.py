"""Agents' processes: starting, watching and ending them, in the caller's own processes only.

`runner`, `trees`, `traces` and `recording` run in the detached runner, with nothing but built-in
modules: it lives as long as its agent, and there may be many.
"""
