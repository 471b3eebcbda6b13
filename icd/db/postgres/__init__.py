"""A project's database on a PostgreSQL server, for hosts on several machines.

The rows, the statements and the schema are SQLite's: `translate` renames the placeholders of a
statement, once for each text, and `schema` derives the tables from the same numbered migrations.
Each project has a schema of its own, and in it a few functions that SQLite has and the server has
not.

    connect     how a server is reached, and what it must be: UTF-8, and locks that are locks
    connection  the shape of sqlite3's: statements travel in a pipeline, prepared, with deadlines
    session     one project's: its turns, the time, the commit, what others wrote
    errors      what the server says, as errors with names
    schema      tables from the migrations
    database    the engine that a host holds
    project     making a project on a server, and looking at it

Writers of one project are serial because each takes one advisory lock at the beginning of its
transaction; readers take a snapshot and no lock.

No command and no setting leads here yet: what is recorded of a process says which boot it belongs
to, and not which machine, so that a host would take the processes of all others for dead.
"""
