"""Input that nobody in his right mind would send, to everything that reads input.

Four ways in, in turn, each with inputs made from the corpus in tests/torture/hostile_inputs:
    decoders   in processes of their own, by libFuzzer, which is guided by what of our code an input
               reaches: frames, lines of JSON-RPC, command lines, replies, settings and the others
               in targets.py
    socket     the same frames and lines to a daemon
    commands   whole processes, with such arguments, such stdin and such a file of settings
    library    one bash that calls the library with such names and payloads

No crash, no hang, no traceback, no exit status but 0 to 3; what is refused has changed nothing; the
daemon still answers, and its log knows of no failure.
"""

import contextlib
import itertools
import json
import os
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.processes import DOORS, PATIENCE, Daemon
from tests.torture import fuzzer
from tests.torture.bash import REPORT, Bash
from tests.torture.code import ROOT, Code
from tests.torture.mutators import INTERESTING, mutated
from tests.torture.suite import Broken, Run

CORPUS = ROOT / "tests" / "torture" / "hostile_inputs"
EXITS = (0, 1, 2, 3)
RUN_BY_A_SHELL = (
    b"$(touch canary)",
    b"`touch canary`",
    b"x;touch canary",
    b"x[$(touch canary)]",
)
# What no program of ours may say; the sanitizers are in the native client.
HARM = ("Traceback", "internal error", "Sanitizer", "runtime error:")
# Cases of each way before the next has its turn; a command is a process, and takes its time.
SENT, CALLED = 50, 4
# Of one kind of input to a decoder: each start takes a second or two, and each kind shall have
# several turns, where there is time for it.
SLICE_SECONDS, ROUNDS = 10, 6

Corpus = dict[str, list[bytes]]


def run(run: Run, ways: tuple[str, ...] = ("decoders", "socket", "commands", "library")) -> None:
    corpus = {
        kind.name: [file.read_bytes() for file in sorted(kind.iterdir())]
        for kind in sorted(CORPUS.iterdir())
    }
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(WAYS[way](run, corpus)) for way in ways]
        while not run.is_over:
            for try_some in made:
                try_some()


# --- the decoders ---


@contextlib.contextmanager
def _decoders(run: Run, _corpus: Corpus) -> Iterator[Callable[[], None]]:
    seconds = max(1, min(SLICE_SECONDS, int(run.seconds / ROUNDS / len(fuzzer.KINDS))))
    kinds = itertools.cycle(fuzzer.KINDS)
    if not fuzzer.is_there():
        print(fuzzer.MISSING, flush=True)
        yield lambda: fuzzer.replay(run, next(kinds))
        return
    with fuzzer.Fuzzer(run) as found:
        yield lambda: found.fuzz(next(kinds), seconds)


# --- a daemon ---


class Scene:
    """A project that a daemon serves, and what its database holds."""

    def __init__(self, code: Code, directory: Path, daemon: Daemon) -> None:
        self.code, self.daemon = code, daemon
        self.project = directory / "project"
        (self.project / ".git").mkdir(parents=True)
        daemon.call("db.init", cwd=str(self.project))
        given = {"cwd": str(self.project), "key": "k", "scope_id": "s"}
        daemon.call("state.set", payload={"kept": True}, **given)
        file = self.project / ".clavain" / "intercore.db"
        self._conn = sqlite3.connect(file, isolation_level=None)
        self._conn.execute("PRAGMA query_only = 1")
        self._version, self._content = -1, ""

    def close(self) -> None:
        self._conn.close()

    def content(self) -> str:
        """All rows; only if there was a commit since somebody last asked, they are read again."""
        (version,) = self._conn.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version, self._content = version, "\n".join(self._conn.iterdump())
        return self._content

    def require_no_write(self, act: Callable[[], bool], what: object) -> None:
        """Unless `act` says that it was not refused.

        The daemon tidies up when it likes, so what was changed at that moment is tried again.
        """
        for _ in range(2):
            before = self.content()
            if not act() or self.content() == before:
                return
        raise Broken(f"{what!r} was refused, and changed the database")

    def require_unharmed(self, what: object) -> None:
        """The daemon answers, and has nothing to tell."""
        assert self.daemon.process is not None
        status = self.daemon.process.poll()
        log = self.daemon.log.read_text(errors="replace")
        if status is not None:
            raise Broken(f"the daemon ended with {status} after {what!r}:\n{log}")
        if "Traceback" in log or "a session failed" in log:
            raise Broken(f"the daemon failed at {what!r}:\n{log}")
        reply = self.daemon.respond("state.list", cwd=str(self.project), prefix="")
        if "result" not in reply:
            raise Broken(f"the daemon answers {reply} after {what!r}")


@contextlib.contextmanager
def scene(run: Run, name: str) -> Iterator[Scene]:
    daemon = run.code.daemon()
    try:
        found = Scene(run.code, run.directory / name, daemon.start())
        with contextlib.closing(found):
            yield found
    finally:
        daemon.close()


@contextlib.contextmanager
def _socket(run: Run, corpus: Corpus) -> Iterator[Callable[[], None]]:
    with scene(run, "socket") as found:
        here = os.fsencode(found.project)
        known = corpus["frames"] + corpus["lines"]
        untried = list(known)

        def try_some() -> None:
            for _ in range(SENT):
                case = untried.pop() if untried else mutated(run.rng, known)
                # Only now: a seed makes the same inputs wherever we are.
                case = case.replace(b"/project", here)
                found.require_no_write(lambda: _all_refused(_sent(found.daemon, case)), case)  # noqa: B023
                found.require_unharmed(case)
                run.figures["inputs sent"] += 1

        yield try_some


def _sent(daemon: Daemon, case: bytes) -> bytes:
    """All that is answered to a peer that says this and no more."""
    replies = b""
    with daemon.connect() as sock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sock.sendall(case)
        sock.shutdown(socket.SHUT_WR)
        try:
            while chunk := sock.recv(1 << 20):
                replies += chunk
        except TimeoutError:
            raise Broken(f"nothing is answered to {case!r} within {PATIENCE} s") from None
    return replies


def _all_refused(replies: bytes) -> bool:
    """Whether every answer is certain to be a refusal."""
    if replies[:1] in b"23" and replies[1:2] == b" ":
        out = replies.split(b"\n", 1)[0].split(b" ")
        head = len(replies.split(b"\n", 1)[0]) + 1
        return len(replies) == head + sum(int(size) for size in out[1:])
    if replies[:1] not in (b"{", b"["):
        return False  # a notification is not answered, whatever came of it
    try:
        answers = [json.loads(line) for line in replies.splitlines()]
    except ValueError:
        raise Broken(f"an answer is no JSON: {replies!r}") from None
    flat = [each for line in answers for each in (line if isinstance(line, list) else [line])]
    for each in flat:
        if each.get("error", {}).get("data", {}).get("name") == "internal":
            raise Broken(f"a bug was answered: {each}")
    return all("error" in each for each in flat)


# --- commands, each a process ---


@contextlib.contextmanager
def _commands(run: Run, corpus: Corpus) -> Iterator[Callable[[], None]]:
    with scene(run, "commands") as found:
        clients = itertools.cycle([found.code.client(), *([str(n)] for n in _native(run))])
        settings = found.project / ".clavain" / "intercore.toml"

        def try_one() -> None:
            words = [
                word for word in mutated(run.rng, corpus["argv"]).split(b"\0") if len(word) < 9000
            ]
            settings.unlink(missing_ok=True)
            if run.rng.random() < 0.3:
                settings.write_bytes(mutated(run.rng, corpus["toml"]))
                words = [b"state", b"get", b"k", b"s"]
            env = {"INTERCORE_SOCKET": found.daemon.socket}
            if run.rng.random() < 0.5:
                env = {"INTERCORE_MODE": "direct"}
            stdin = mutated(run.rng, corpus["payloads"])
            client = next(clients)
            found.require_no_write(lambda: _call(found, [*client, *words], stdin, env) >= 2, words)
            run.figures["commands called"] += 1

        def try_some() -> None:
            for _ in range(CALLED):
                try_one()
            settings.unlink(missing_ok=True)
            found.require_unharmed("commands")

        yield try_some


def _native(run: Run) -> list[Path]:
    """The native client, if there is one: built with the sanitizers, from the code as it is."""
    program = DOORS / "native" / "icctl"
    return [program] if program.exists() and run.code.root == ROOT else []


def _call(found: Scene, words: list[str | bytes], stdin: bytes, env: dict[str, str]) -> int:
    """The exit status of a command."""
    try:
        done = subprocess.run(
            words,
            cwd=found.project,
            env={**found.code.env, "HOME": str(found.project), **env},
            input=stdin,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"{words!r} does not end") from None
    told = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode not in EXITS or any(word in told for word in HARM):
        raise Broken(f"{words!r}, {env}: exit {done.returncode}: {told}")
    return done.returncode


# --- the library ---


@contextlib.contextmanager
def _library(run: Run, corpus: Corpus) -> Iterator[Callable[[], None]]:
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(scene(run, "library"))
        shells = itertools.cycle(
            stack.enter_context(Bash(found.code, found.project, found.daemon, program))
            for program in (None, *_native(run))
        )
        names = [word for word in INTERESTING if b"\0" not in word]
        names += [b"name", b"a.b", b"* ?", *RUN_BY_A_SHELL]

        def name() -> bytes:
            made = mutated(run.rng, names) if run.rng.random() < 0.5 else run.rng.choice(names)
            return made.replace(b"\0", b"")[:5000]

        def try_some() -> None:
            bash = next(shells)
            for _ in range(CALLED):
                payload = mutated(run.rng, corpus["payloads"]).replace(b"\0", b"")
                words = bash.made(run.rng, name, payload)
                found.require_no_write(lambda: bash.call(*words) >= 2, words)  # noqa: B023
                run.figures["calls of the library"] += 1
            if (found.project / "canary").exists():
                raise Broken(f"a name was run as a command; the last one: {bash.last!r}")
            for report in found.project.glob(f"{REPORT}.*"):
                raise Broken(f"{report.read_text(errors='replace')}; the last call: {bash.last!r}")
            found.require_unharmed(bash.last)

        yield try_some


WAYS = {"decoders": _decoders, "socket": _socket, "commands": _commands, "library": _library}
