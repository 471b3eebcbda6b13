"""Settings: read once, frozen, and strict about what they do not know.

In rising order: `~/.config/intercore/config.toml` for the user, `.clavain/intercore.toml` for one
project, the environment, and flags.  The environment and the flags are those of the process that
opens the database.  Both hosts read everything the same way.
"""

from icd.config.settings import (
    CHANNELS,
    DEFAULTS,
    RETENTION_SECONDS,
    Channel,
    Mirror,
    Settings,
    complete,
)
from icd.config.sources import (
    OF_THE_DAEMON,
    PROJECT_FILE,
    USER_FILE,
    VARIABLES,
    Given,
    check_environment,
    from_environment,
    from_flags,
    load,
    project_file,
    read,
    user_file,
)

__all__ = [
    "CHANNELS",
    "DEFAULTS",
    "OF_THE_DAEMON",
    "PROJECT_FILE",
    "RETENTION_SECONDS",
    "USER_FILE",
    "VARIABLES",
    "Channel",
    "Given",
    "Mirror",
    "Settings",
    "check_environment",
    "complete",
    "from_environment",
    "from_flags",
    "load",
    "project_file",
    "read",
    "user_file",
]
