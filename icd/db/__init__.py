"""Finding, locking, opening, migrating and checking a project's database."""
