"""Events about agents, in the words and the JSON of the original program.

There is no table behind it.  `record` writes an event of the source `interspect` to the log, and
`query` reads these events and shows them in the shape that scripts of the original expect.
"""
