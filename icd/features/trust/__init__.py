"""`icctl trust`: accept what a database would do outside of itself, after showing it.

Rows can name programs to start and files to write, and a database can come with a clone.  So data
needs no trust and effects do (docs/adr/0016); the rule and its records are in `icd.trust`.  This
noun collects, from the nouns that have effects, what this database would do, prints it, and records
the consent in the home directory of the caller, in the caller's own process.
"""
