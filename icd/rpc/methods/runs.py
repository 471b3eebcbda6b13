"""run.*: what agents work on."""

from icd.rpc.methods import budgets, snapshots

METHODS = [*budgets.METHODS, *snapshots.METHODS]
