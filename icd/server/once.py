"""Things that are worth one line in the log, and not one for each call."""

from icd.server.logs import log

# Whoever makes more of them than this is told no more: a project decides how many there are.
REMEMBERED = 1000


class Once:
    """Remembers what was said since the daemon started.  Threads may use it."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, sentence: str, **facts: object) -> None:
        said = f"{sentence} {facts}"
        if said not in self._said and len(self._said) < REMEMBERED:
            self._said.add(said)
            log.warning("%s", sentence, extra=facts)
