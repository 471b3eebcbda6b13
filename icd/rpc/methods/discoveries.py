"""discovery.*: what scanners have found."""

from icd.rpc.methods import searches

METHODS = [*searches.METHODS]
