"""discovery.*: what scanners have found."""

from icd.rpc.methods import profiles

METHODS = [*profiles.METHODS]
