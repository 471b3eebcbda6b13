"""The API: a table of typed methods, and the one dispatcher that both hosts call."""
