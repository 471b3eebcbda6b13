"""Things that are worth one line in the log, and not one for each call."""

from icd.server.logs import log

# What comes after so many is not logged: a project decides how many there are.
REMEMBERED = 200


class Once:
    """Remembers what was said since the daemon started.  Threads may use it."""

    def __init__(self) -> None:
        self._said: set[int] = set()

    def warn(self, sentence: str, **facts: object) -> None:
        said = hash(f"{sentence} {facts}")
        if said not in self._said and len(self._said) < REMEMBERED:
            self._said.add(said)
            log.warning("%s", sentence, extra=facts)
