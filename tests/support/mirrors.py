"""What it takes for rows to become files: the user wants that, and trusts the database."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icd import trust
from tests.support.processes import Daemon, until


def want(home: Path) -> None:
    (home / ".interband").mkdir(exist_ok=True)


def accept(home: Path, project: Path) -> None:
    """As `icctl trust` does, for a database that was made with another home directory."""
    trust.grant(str(home), str(project / ".clavain" / "intercore.db"))


class Band:
    """The directory that readers look into."""

    def __init__(self, daemon: Daemon) -> None:
        self.root = daemon.home / ".interband"

    def file(self, channel: str, name: str) -> Path:
        return self.root / channel / f"{name}.json"

    def payload(self, channel: str, name: str) -> Any:
        try:
            return json.loads(self.file(channel, name).read_text())["payload"]
        except FileNotFoundError:
            return None

    def shows(self, channel: str, name: str, payload: Any) -> None:
        until(lambda: self.payload(channel, name) == payload)

    def shows_soon(self, channel: str, name: str, payload: Any, write: Callable[[], Any]) -> None:
        """Of a row that lives for seconds: a busy machine may look too late, so it is written anew."""

        def is_seen() -> bool:
            write()
            return self.payload(channel, name) == payload

        until(is_seen)
