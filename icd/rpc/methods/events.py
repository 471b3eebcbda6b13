"""events.*: the log."""

from icd.rpc.methods.watches import WATCH

METHODS = [WATCH]
