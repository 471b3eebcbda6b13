"""The domain: plain functions of (connection, parameters, now).

Nothing here begins or commits a transaction, reads a clock, or knows who is asking over what.
"""
