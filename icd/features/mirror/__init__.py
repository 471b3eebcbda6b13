"""Rows of state as files, for readers that cannot ask a database.

Some programs read interband files, and cannot be changed.  interband.py says what such a file holds
and how it is named after a row's key and scope; it touches no file.  The daemon writes the files,
in `icd.server.workers`, and verbs.py has the questions that it asks of a database for this.  No
caller can ask them: they are in no list of verbs.
"""
