"""The way over from the temporary files that hooks used before there was a database.

Hooks kept facts in files, mostly in /tmp: a JSON document was a value, and a file that existed was
a guard.  Old hooks may go on writing them for a while, so an import can be repeated at any time,
and the database wins wherever it is as new as the file.

The work is divided by rights.  The client finds and reads the files, because they are the caller's;
the database judges what they say and knows no file.  files.py tells what a name
means, reads and removes without trusting what lies there, and store.py compares with the rows.
Only the very file that was read is removed, once its content is in the database; with
`--superseded`, also once newer data is.
"""
