"""`icctl run …`"""

from icd.cli import budgets, snapshots

COMMANDS = [*budgets.COMMANDS, *snapshots.COMMANDS]
