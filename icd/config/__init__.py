"""Settings: read once, frozen, and strict about what they do not know.

In rising order: `~/.config/intercore/config.toml` for the user, `.clavain/intercore.toml` for one
project, the environment, and flags.  The environment and the flags are those of the process that
opens the database.  Both hosts read everything the same way.

settings.py declares what can be set, as one frozen struct with defaults; sources.py merges the four
sources into it.  A mistake is an error that names its place, never a default that is silently used.

A project may come from a stranger, so its file says only what holds for its own database: it names
no place, starts nothing, and decides nothing for the daemon of all projects.  Its text is bounded
and measured (shape.py) before it is parsed, because some documents of 64 KiB take a minute to
parse.
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
