"""`icctl config`: the settings that hold for a project, where each comes from, what is wrong.

The rules are in `icd.config`; this noun only shows them.  It runs in the caller's own process, so
it tells what a direct call from this directory would use.  `show` stops at the first mistake as any
call does; `check` tells all mistakes, with file and line.
"""
