"""`icctl discovery …`"""

from icd.cli import profiles

COMMANDS = [*profiles.COMMANDS]
