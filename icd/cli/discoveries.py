"""`icctl discovery …`"""

from icd.cli import searches

COMMANDS = [*searches.COMMANDS]
