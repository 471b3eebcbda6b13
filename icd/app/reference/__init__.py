"""Texts that are made from the table of rows: help, completion scripts, manual pages, OpenRPC.

A row says what a command is called, what is typed, what each word means, and shows examples.
Each module here turns that into the format of one reader, a person at a prompt, a shell, `man`,
the author of a client, and adds nothing: a text that is wrong is mended in the row.  The reference
pages in docs/ are made in the same way, by `make docs`.
"""
