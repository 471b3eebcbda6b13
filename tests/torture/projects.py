"""A project whose daemon is about to die: those who keep it busy, and what must be left of it."""

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import mirrors
from tests.support.processes import PATIENCE, Daemon
from tests.torture import failing
from tests.torture.ledger import DIRECT, Ledger, Operation
from tests.torture.suite import Broken
from tests.torture.upgrades import content
from tests.torture.workload import Workload

CLIENTS = 3
# An idle daemon has mirrored and tidied up by then, unless the machine is busy: then a later rest
# will do.
REST_SECONDS = 0.2


class Project:
    """A database, what was asked of it, and those who ask."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        (directory / ".git").mkdir(parents=True)
        self.database = directory / ".clavain" / "intercore.db"
        self.aside = directory / "aside.db"
        self.band = directory / "band"
        self.ledger = Ledger()
        self._workloads = [Workload(rng, self.ledger, str(lane)) for lane in range(CLIENTS)]
        self._peers: list[socket.socket] = []

    @property
    def where(self) -> dict[str, str]:
        return {"cwd": str(self.directory)}

    @property
    def is_made(self) -> bool:
        """Only a daemon that dies before its first answer leaves a database that is not."""
        return any(known.outcome for known in self.ledger.operations)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self._peers = []

    def keep_busy(self, daemon: Daemon, point: str, upgrades: list[Path]) -> None:
        """Until it dies; that it does not is an error."""
        deadline = time.monotonic() + PATIENCE
        try:
            self._peers = [daemon.connect() for _ in range(CLIENTS)]
            self._initialize([*upgrades, self.directory])
            mirrors.accept(daemon.home, self.directory)  # one who made it may not live to note it
            self._again(self._peers[0])
            turn = 0
            while time.monotonic() < deadline:
                turn += 1
                self._rounds(daemon, point, turn)
        except ConnectionError:
            return
        finally:
            self.close()
        raise Broken(f"the failpoint {point} was never reached; log: {daemon.log.read_text()}")

    def settle(self, daemon: Daemon) -> None:
        with daemon.connect() as peer:
            daemon.call("db.init", **self.where)
            mirrors.accept(daemon.home, self.directory)
            self._again(peer)

    def _initialize(self, directories: list[Path]) -> None:
        for number, directory in enumerate(directories):
            call = Operation(f"init-{number}", "db.init", {})
            self._exchange([(self._peers[0], [call])], cwd=str(directory))

    def _again(self, peer: socket.socket) -> None:
        """In the order in which they were asked first."""
        unknown = [known for known in self.ledger.unknown if known.params.get("key") != DIRECT]
        for start in range(0, len(unknown), 8):
            self._exchange([(peer, unknown[start : start + 8])], **self.where)

    def _rounds(self, daemon: Daemon, point: str, turn: int) -> None:
        """What brings a daemon to its failpoint, besides calls."""
        bursts = zip(self._peers, self._workloads, strict=True)
        self._exchange([(peer, load.burst()) for peer, load in bursts], **self.where)
        if point == "backup" and turn % 3 == 0:
            backup = Operation(f"backup-{turn}", "backup.create", {})
            self._exchange([(self._peers[0], [backup])], **self.where)
        elif point in failing.REEXEC and turn == 2:
            daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        elif point in (*failing.CHECKPOINTS, "mirror") and turn % 3 == 0:
            self._rest()
        elif point == "migration":
            daemon.kill()  # it had fewer statements than that
            raise ConnectionError

    def _rest(self) -> None:
        """The daemon tidies up and mirrors while nobody asks; unless it dies over it."""
        self._peers[0].settimeout(REST_SECONDS)
        try:
            if not self._peers[0].recv(1):
                raise ConnectionResetError
        except TimeoutError:
            pass
        finally:
            self._peers[0].settimeout(PATIENCE)

    def _exchange(self, bursts: list[tuple[socket.socket, list[Operation]]], **where: Any) -> None:
        """Everybody asks, then everybody is answered; all answers that arrived are read."""
        gone = False
        for peer, operations in bursts:
            try:
                peer.sendall(b"".join(known.request(**where) for known in operations))
            except ConnectionError:
                gone = True
        for peer, operations in bursts:
            gone |= not read_answers(peer, operations)
        if gone:
            raise ConnectionResetError

    def check(self) -> None:
        copy = copied(self.database, self.aside)
        if not copy.exists() or not (self.is_made or content(copy)[0]):
            return
        there = self.ledger.check(copy)
        for known in self.ledger.unknown:
            if known.params.get("key") == DIRECT:  # nobody asks again: it stays as it is
                known.outcome = {"result": None} if known.id in there else {}
        for backup in sorted(self.database.parent.glob("intercore.db.backup-*"))[-1:]:
            content(backup)
        for file in self.band.glob("interphase/bead/*.json"):
            shown = json.loads(file.read_bytes())["payload"]["op"]
            if shown not in there:
                raise Broken(f"{file} shows {shown}, which was never committed")

    def is_mirrored(self) -> bool:
        """Whether the files show what the rows hold."""
        rows = {}
        for known in self.ledger.operations:
            if known.params.get("key") == "bead" and known.outcome:
                version = known.outcome["result"]["version"]
                name = known.params["scope_id"]
                rows[name] = max(rows.get(name, (0, "")), (version, known.id))
        files = {
            file.stem: json.loads(file.read_bytes())["payload"]["op"]
            for file in self.band.glob("interphase/bead/*.json")
        }
        return files == {name: id_ for name, (_, id_) in rows.items()}


class DirectCall:
    """A row that is written by a process of its own.

    Without the daemon; or by another `client`, which uses the daemon for as long as that lives, and
    then the file.
    """

    def __init__(
        self,
        project: Project,
        id_: str,
        env: dict[str, str],
        client: Sequence[str | Path] = (sys.executable, "-m", "tests.torture.failing", "direct"),
    ) -> None:
        params = {"key": DIRECT, "scope_id": id_}
        self._operation = project.ledger.add(Operation(id_, "state.set", params))
        words = ["--timeout=30s", "state", "set", DIRECT, id_, '--value={"by": "hand"}']
        self._process = subprocess.Popen(
            [*client, *words],
            cwd=project.directory,
            env={**env, "HOME": str(project.directory)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def ended(self) -> int:
        try:
            _, stderr = self._process.communicate(timeout=PATIENCE)
        finally:
            self._process.kill()
        status = self._process.returncode
        if status == 0:
            self._operation.outcome = {"result": None}
        elif status != -signal.SIGKILL:
            raise Broken(f"a direct call ended with {status}: {stderr.decode()}")
        return status


def read_answers(peer: socket.socket, operations: list[Operation]) -> bool:
    """Whether all have arrived; a part of a line is no answer."""
    asked = {known.id: known for known in operations}
    data = b""
    while asked:
        try:
            chunk = peer.recv(1 << 16)
        except ConnectionError:
            return False
        if not chunk:
            return False
        *lines, data = (data + chunk).split(b"\n")
        for line in lines:
            response = json.loads(line)
            asked.pop(response["id"]).settle(response)
    return True


def copied(database: Path, aside: Path) -> Path:
    """With its log, so that opening it recovers it and the daemon must do so, too."""
    for old in aside.parent.glob(f"{aside.name}*"):
        old.unlink()
    for suffix in ("", "-wal"):
        file = database.with_name(database.name + suffix)
        if file.exists():
            shutil.copy(file, f"{aside}{suffix}")
    return aside
