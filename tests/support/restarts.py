"""A daemon that comes and goes, or goes on with other code, while others use it."""

import importlib
import signal
import threading
from pathlib import Path
from typing import Self

import icd
from icctl import direct  # noqa: F401 -- with what is below, for processes that are forked:
from icd.app import registry
from tests.support.processes import PATIENCE, Daemon, until

for _name in registry.modules():
    importlib.import_module(_name)  # each of them would load it by itself


def last_loaded() -> Path:
    """Of the modules that a daemon loads a moment after it has started, inside the package."""
    file = importlib.import_module(registry.modules()[-1]).__file__
    return Path(file or "").relative_to(Path(icd.__file__).parent)


def marked(package: Path, mark: Path) -> Path:
    """Have a copy of the package make a file when a daemon has loaded all of it."""
    with (package / last_loaded()).open("a") as file:
        file.write(f"\nopen({str(mark)!r}, 'w').close()\n")
    return mark


def mode_of(mode: str, number: int) -> str:
    """How the n-th process finds its host."""
    if mode == "mixed":
        return "daemon" if number % 2 else "direct"
    return "auto" if mode == "restarts" else mode


class Restarts(threading.Thread):
    """A daemon that comes and goes, politely and otherwise, until it is told to end."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__()
        self._daemon = daemon
        self._over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._over.wait(0.1):
            if self.count % 2:
                self._daemon.kill()
            else:
                assert self._daemon.stop() == 0, self._daemon.log.read_text()[-3000:]
            self.count += 1
            if not self._over.wait(0.05):
                self._daemon.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(PATIENCE)


def listening(daemon: Daemon) -> int:
    """How often a daemon has begun to listen here."""
    return daemon.log.read_text().count('"listening"')


def reload(daemon: Daemon) -> None:
    before = listening(daemon)
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: listening(daemon) > before)
