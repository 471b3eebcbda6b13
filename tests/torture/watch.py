"""Watch: whoever follows sees everything, in order, at least once, and nothing before its commit.

Writers record events through both hosts, each known by its key, and count up one row of state.
Meanwhile five kinds of readers follow: a subscription (`events.watch`) that goes on after the last
event it has; `events tail --consumer -f`, whose process is killed at any time; `events tail
--consumer` again and again, through a door that loses replies; a program that acknowledges by
itself (`events.consume`), and forgets what it has not acknowledged; and a subscription to the row
(`state.watch`).  The daemon is killed, stopped and reloaded.

At the end of each round the log is read without a daemon: every acknowledged event is in it, and
each reader was shown all of it, for the first time in its order, and nothing that is not in it.
While they follow, somebody who does not wait for any lock looks whether what is shown is committed.
"""

import contextlib
import json
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.processes import PATIENCE, Daemon
from tests.torture.clients import LossyDoor, Worker
from tests.torture.suite import Broken, Run

ROUND_SECONDS = 2.0
CALM_SECONDS = (0.1, 0.6)  # between two disturbances
LOOK_SECONDS = 0.1  # how long a reader waits before it looks whether it is over
PAUSE_SECONDS = 0.002  # of a writer: readers are to keep up
DIRECT = {"INTERCORE_MODE": "direct"}


def run(run: Run) -> None:
    project = run.directory / "project"
    (project / ".git").mkdir(parents=True)
    made = run.code.icctl("init", cwd=project, env=DIRECT)
    assert made.returncode == 0, made.stderr
    with contextlib.ExitStack() as stack:
        daemon = run.code.daemon()
        stack.callback(daemon.close)
        daemon.start()
        scene = _Scene(run, project, daemon, stack)
        number = 0
        while number == 0 or not run.is_over:
            scene.round(number)
            number += 1


class Shown:
    """What one reader was shown, of the log; `acked` are events that must be in it, by their key."""

    def __init__(self, name: str, acked: dict[str, int]) -> None:
        self.name = name
        self._acked = acked
        self.last = 0  # the greatest that it has seen
        self.first_time: list[tuple[int, str]] = []
        self.again = 0

    def take(self, event: dict[str, Any]) -> None:
        seq = event["seq"]
        if seq <= self.last:
            self.again += 1
            return
        if missed := self._between(seq):
            raise Broken(f"{self.name} was shown {seq} after {self.last}, but not {missed[:9]}")
        self.last = seq
        self.first_time.append((seq, event["idempotency_key"]))

    def _between(self, seq: int) -> list[int]:
        """What it must have been shown first; usually there is no number in between at all."""
        if seq == self.last + 1:
            return []
        return [each for each in self._acked.copy().values() if self.last < each < seq]

    def compare(self, log: list[tuple[int, str]]) -> None:
        """Up to where it has read, it was shown what the log has."""
        if self.first_time == log[: len(self.first_time)]:
            return
        pairs = zip([*self.first_time, None], log, strict=False)
        shown, there = next(((a, b) for a, b in pairs if a != b), (self.first_time[-1], None))
        raise Broken(
            f"{self.name} was shown {shown} where the log has {there}, of {len(log)} events"
        )


def in_order(events: list[dict[str, Any]], name: str, after: int = 0) -> None:
    """One answer, or one process, never goes back."""
    for event in events:
        if event["seq"] <= after:
            raise Broken(f"{name} was shown {event['seq']} after {after}")
        after = event["seq"]


class _Scene:
    def __init__(
        self, run: Run, project: Path, daemon: Daemon, stack: contextlib.ExitStack
    ) -> None:
        self._run = run
        self._project = project
        self._daemon = daemon
        self._where = {"cwd": str(project)}
        self._door = LossyDoor(daemon.home / "door.sock", daemon.socket, random.Random(run.seed))
        stack.callback(self._door.close)
        self._worker = Worker("direct", run.code, daemon.socket, project, "direct")
        stack.callback(self._worker.close)
        self._acked: dict[str, int] = {}
        self._shown = {
            name: Shown(name, self._acked) for name in ("stream", "follower", "caller", "manual")
        }
        self._log: list[tuple[int, str]] = []
        self._counted = self._seen = 0
        self._known: dict[str, int] = {}  # the version of the row that was shown last
        self._errors = stack.enter_context((project / "readers.err").open("ab"))
        for name in self._shown:
            daemon.call("cursor.register", **self._where, consumer=name, durable=True)

    def round(self, number: int) -> None:
        self._written = threading.Event()
        self._failed = threading.Event()
        self._failures: list[BaseException] = []
        rng = random.Random(f"{self._run.seed}/{number}")
        writers = [
            self._thread(self._record, f"{number}/a"),
            self._thread(self._record, f"{number}/b"),
            self._thread(self._record_directly, f"{number}/c"),
            self._thread(self._count, number),
        ]
        disturber = self._thread(self._disturb, rng)
        readers = [
            self._thread(self._stream, None),
            self._thread(self._follow, random.Random(rng.random())),
            self._thread(self._call, None),
            self._thread(self._consume, random.Random(rng.random())),
            self._thread(self._watch_row, None),
        ]
        self._failed.wait(ROUND_SECONDS)
        self._written.set()
        self._join([*writers, disturber], "a writer was never answered")
        self._join(readers, "a reader was never shown the end of the log")
        self._check()

    def _thread(self, job: Callable[[Any], None], given: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                job(given)
            except BaseException as exc:  # noqa: BLE001 -- raised again, by the thread that waits
                self._failures.append(exc)
                self._failed.set()
                self._written.set()

        thread = threading.Thread(target=guarded, name=job.__name__)
        thread.start()
        return thread

    def _join(self, threads: list[threading.Thread], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE * 2
        for thread in threads:
            while thread.is_alive() and not self._failed.is_set():
                thread.join(LOOK_SECONDS)
                if time.monotonic() > deadline:
                    self._failures.append(Broken(f"{otherwise}: {thread.name}"))
                    self._failed.set()
        if self._failures:
            for thread in threads:
                thread.join(PATIENCE)
            raise self._failures[0]

    # --- writers ---

    def _record(self, name: str) -> None:
        number = 0
        while not self._written.is_set():
            key = f"{name}/{number}"
            said = {"source": "w", "type": "t", "idempotency_key": key}
            if found := self._ask("events.record", **said):
                self._acked[key] = found["seq"]
                number += 1
            time.sleep(PAUSE_SECONDS)

    def _record_directly(self, name: str) -> None:
        number = 0
        while not self._written.is_set():
            key = f"{name}/{number}"
            words = ["events", "record", "--source=w", "--type=t", f"--idempotency-key={key}"]
            reply = self._worker.ask(words)
            if reply is None or reply.exit:
                raise Broken(f"recording without a daemon failed: {reply}")
            self._acked[key] = int(reply.stdout)
            number += 1
            time.sleep(PAUSE_SECONDS)

    def _count(self, number: int) -> None:
        turn = 0
        while not self._written.is_set():
            given = {"key": "watched", "scope_id": "s", "request_id": f"{number}-{turn}"}
            if found := self._ask("state.incr", **given):
                self._counted = found["value"]
                turn += 1
            time.sleep(PAUSE_SECONDS)

    def _ask(self, method: str, **params: Any) -> dict[str, Any] | None:
        """None if nobody answered; then it may be asked again."""
        try:
            answer = self._daemon.respond(method, **self._where, **params)
        except (OSError, ValueError):
            return None
        if "error" in answer and not answer["error"]["data"]["retryable"]:
            raise Broken(f"{method} failed: {answer['error']}")
        return answer.get("result")

    # --- readers ---

    def _is_over(self, shown: Shown) -> bool:
        at_the_end = self._written.is_set() and shown.last >= max(
            self._acked.copy().values(), default=0
        )
        return self._failed.is_set() or at_the_end

    def _stream(self, _: None) -> None:
        shown = self._shown["stream"]
        while not self._is_over(shown):
            watching = self._watch("events.watch", lambda: self._is_over(shown), since=shown.last)
            for news in watching:
                in_order(news["events"], "stream", shown.last)
                for event in news["events"]:
                    shown.take(event)
                self._check_committed(news["events"])

    def _check_committed(self, events: list[dict[str, Any]]) -> None:
        """Who reads without a lock sees what is committed, and nothing else."""
        path = self._project / ".clavain" / "intercore.db"
        if not events or not path.with_name("intercore.db-shm").exists():
            return
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
                (head,) = conn.execute("SELECT max(seq) FROM events").fetchone()
        except sqlite3.OperationalError:
            return  # whoever had it open has left meanwhile, and its log with it
        self._run.figures["looks at what is committed"] += 1
        if (head or 0) < events[-1]["seq"]:
            raise Broken(f"event {events[-1]['seq']} was shown, and the last committed is {head}")

    def _watch(
        self, method: str, is_over: Callable[[], bool], **params: Any
    ) -> Iterator[dict[str, Any]]:
        """What a subscription tells, until it ends, whyever."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": self._where | params}
        data = b""
        with contextlib.suppress(OSError), self._daemon.connect() as sock:
            sock.sendall(json.dumps(request).encode() + b"\n")
            sock.settimeout(LOOK_SECONDS)
            while not is_over():
                try:
                    chunk = sock.recv(1 << 20)
                except TimeoutError:
                    continue
                if not chunk:
                    break
                *lines, data = (data + chunk).split(b"\n")
                for line in map(json.loads, lines):
                    if "params" not in line:
                        return
                    yield line["params"]
        time.sleep(PAUSE_SECONDS)

    def _follow(self, rng: random.Random) -> None:
        """Whatever the process has written counts as shown, also if it was killed right then."""
        shown = self._shown["follower"]
        while not self._is_over(shown):
            process = self._tail("--follow", "--consumer=follower", address=self._daemon.socket)
            kill_at = time.monotonic() + rng.uniform(0.2, 1.5)
            killer = threading.Thread(target=self._end, args=(process, kill_at, shown))
            killer.start()
            self._take(process, shown)
            killer.join(PATIENCE)
            self._run.figures["killed readers"] += process.returncode == -signal.SIGKILL

    def _end(self, process: "subprocess.Popen[bytes]", kill_at: float, shown: Shown) -> None:
        while process.poll() is None:
            if self._is_over(shown) or time.monotonic() > kill_at:
                process.kill()
            time.sleep(0.01)

    def _call(self, _: None) -> None:
        shown = self._shown["caller"]
        while not self._is_over(shown):
            words = ["--consumer=caller", "--limit=500", f"--timeout={PATIENCE:.0f}s"]
            process = self._tail(*words, address=self._door.address)
            self._take(process, shown)
            if process.returncode:
                said = Path(self._errors.name).read_text()[-1000:]
                raise Broken(f"events tail failed, exit {process.returncode}: {said}")

    def _tail(self, *words: str, address: str) -> "subprocess.Popen[bytes]":
        env = {**self._run.code.env, "HOME": str(self._project), "INTERCORE_SOCKET": address}
        return subprocess.Popen(
            self._run.code.client("events", "tail", "--all", *words),
            cwd=self._project, env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip

    def _take(self, process: "subprocess.Popen[bytes]", shown: Shown) -> None:
        assert process.stdout is not None
        last = 0
        with process.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # else it was killed while it wrote
                    event = json.loads(line)
                    in_order([event], shown.name, last)
                    last = event["seq"]
                    shown.take(event)
        process.wait(PATIENCE)

    def _consume(self, rng: random.Random) -> None:
        """A program that dies before it acknowledges has not dealt with anything."""
        shown = self._shown["manual"]
        acked = None
        while not self._is_over(shown):
            given = {} if acked is None else {"acked": acked}
            found = self._ask("events.consume", consumer="manual", limit=50, **given)
            events = found["events"] if found else []
            in_order(events, "manual")
            if not events or rng.random() < 0.3:
                acked = None
                time.sleep(PAUSE_SECONDS)
                continue
            for event in events:
                shown.take(event)
            acked = events[-1]["seq"]

    def _watch_row(self, _: None) -> None:
        known = self._known

        def is_over() -> bool:
            at_the_end = self._written.is_set() and self._seen >= self._counted
            return self._failed.is_set() or at_the_end

        while not is_over():
            for news in self._watch("state.watch", is_over, key="watched", known=known):
                for row in news["rows"]:
                    if row["payload"] <= self._seen or row["version"] <= known.get("s", 0):
                        raise Broken(f"the row was shown as {row} after {self._seen}, {known}")
                    self._seen, known["s"] = row["payload"], row["version"]

    # --- the world ---

    def _disturb(self, rng: random.Random) -> None:
        while not self._written.wait(rng.uniform(*CALM_SECONDS)):
            what = rng.choice(["stop", "kill", "kill", "reload"])
            if what == "reload":
                assert self._daemon.process is not None
                self._daemon.process.send_signal(signal.SIGHUP)
            else:
                self._daemon.kill() if what == "kill" else self._daemon.stop()
                self._written.wait(rng.uniform(0, 0.2))
                self._daemon.start()
            self._run.figures[f"{what}s"] += 1

    def _check(self) -> None:
        self._read_log()
        there = {key: seq for seq, key in self._log}
        for key, seq in self._acked.items():
            if there.get(key) != seq:
                raise Broken(
                    f"event {key} was acknowledged as {seq}, and the log says {there.get(key)}"
                )
        figures = self._run.figures
        for shown in self._shown.values():
            shown.compare(self._log)
        figures["events"] = len(self._log)
        figures["events shown again"] = sum(each.again for each in self._shown.values())
        figures["changes of a row"] = self._counted
        figures["lost replies"] = self._door.lost

    def _read_log(self) -> None:
        """The rest of it, page by page, by somebody who needs no daemon."""
        is_more = True
        while is_more:
            since = self._log[-1][0] if self._log else 0
            reply = self._worker.ask(
                ["events", "tail", "--all", f"--since={since}", "--limit=1000"]
            )
            assert reply is not None
            assert reply.exit == 0, reply
            rows = [json.loads(line) for line in reply.stdout.splitlines()]
            self._log += [(event["seq"], event["idempotency_key"]) for event in rows]
            is_more = bool(rows)
