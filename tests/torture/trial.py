"""One repository, one way: it is cloned, used, and looked at for what it did.

A `Trial` keeps a home, a daemon and clients for many repositories; what one of them has spoilt is
made anew for the next.  What was measured and is too much is measured once more, alone.
"""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from icd import procfs
from icd.app.invocation import Ask
from tests.support.processes import DOORS
from tests.torture import commands_tried, hosts_tried, printed, users_home
from tests.torture.code import ROOT, Code
from tests.torture.commands_tried import DEADLINE, patience
from tests.torture.hosts_tried import KILL_AFTER, MEMORY_KB, Clients, Said, Served
from tests.torture.library_tried import Library
from tests.torture.printed import Tell
from tests.torture.repositories import catalogue
from tests.torture.repositories.clone import Clone, Victim
from tests.torture.users_home import Home

PASSABLE = 0o711  # for other users
STRANGER = 12345  # no process and no file of ours has this uid
# By processes of their own; the others differ from these in what is asked for only.
PROCESSES = [["statusline"], ["run", "create", "--goal=g"], ["run", "advance", "{created}"]]
ERROR = 2  # the exit status
ENOUGH = 2  # measurements to speak of a median
LEFT_SECONDS = 1.0  # for what was started and ends by itself
OF_A_KIND = 3  # findings of a repository are told, each with so many characters
DETAIL = 400
RAISED = re.compile(r"(?m)^[\w.]+(?:Error|Exception|Interrupt)\b[^\n\"]*")


class Finding(NamedTuple):
    repository: str
    how: str  # the host, and as whom
    what: str  # of which kind
    detail: str

    def __str__(self) -> str:
        return f"{self.repository} [{self.how}] {self.what}: {self.detail}"


@dataclass(frozen=True)
class Way:
    """How a repository is tried."""

    host: str  # "daemon", "direct", "library" or "programs"
    as_root: bool = False

    def __str__(self) -> str:
        return f"{self.host}, {'root elsewhere' if self.as_root else 'owner'}"

    @property
    def is_served(self) -> bool:
        return self.host in ("daemon", "library")


WAYS = [Way("daemon"), Way("direct")]
DEAR = [Way("programs"), Way("library")]  # a process for each call, or one for all of them


def of_root(ways: list[Way]) -> list[Way]:
    return [Way(way.host, as_root=True) for way in ways]


class Trial:
    """A home, a daemon and clients, for as many repositories as one likes."""

    def __init__(self, code: Code, seed: int) -> None:
        # Not where pytest keeps what it makes: others could not get to their own clones in there.
        self._directory = Path(tempfile.mkdtemp(prefix="strangers-", dir="/tmp"))
        self._directory.chmod(PASSABLE)
        self._code = code
        self._seed = seed
        self._homes = 0
        self._start_seconds = 0.0
        self._read: dict[Path, int] = {}  # how much of each log
        self.findings: list[Finding] = []
        self.clients = Clients(code)
        self._library = Library(code, self._directory / "library")
        self._served: Served | None = None
        self._begin()

    def _begin(self) -> None:
        self._homes += 1
        self.home = Home(self._directory / f"home{self._homes}", self._code)
        self.victim = subprocess.Popen(["sleep", "36000"], stdout=subprocess.DEVNULL)

    @property
    def served(self) -> Served:
        if self._served is not None and not self._served.is_well():
            self._served.close()
            self._served = None
        if self._served is None:
            self._served = Served(self._code, self.home.path, self.home.other)
            hosts_tried.wait_until_quiet(self.home.other / ".clavain" / "intercore.db")
        return self._served

    def close(self) -> None:
        self.clients.close()
        self._end()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self) -> None:
        if self._served is not None:
            self._served.close()
            self._served = None
        self.victim.kill()
        self.victim.wait()

    def _start_over(self) -> None:
        """What one repository has spoilt is not held against the next."""
        self._end()
        self._begin()

    # --- one repository, one way ---

    def attempt(self, name: str, way: Way, argvs: list[list[str]]) -> list[Finding]:
        found = self._once(name, way, argvs)
        again = [one for one in found if one.what in MEASURED]
        if again:  # a loaded machine, or what came before, is no failure
            found = [one for one in found if one.what not in MEASURED]
            found += [one for one in self._once(name, way, argvs) if one.what in MEASURED]
        self.findings += found
        return found

    def _once(self, name: str, way: Way, argvs: list[list[str]]) -> list[Finding]:
        found: list[Finding] = []

        def tell(what: str, detail: str) -> None:
            told = Finding(name, str(way), what, detail[:DETAIL])
            if sum(one.what == what for one in found) < OF_A_KIND:
                found.append(told)

        if way.is_served:
            self.served.forget_peak()
        clone = self._clone(name, way)
        before = self.home.seen(clone.root)
        with self._watched(way, tell) as longest:
            for argv, said in self._calls(clone, way, argvs):
                printed.judge(argv, said, tell)
                longest.append(said.seconds)
            if way.is_served:
                self._ask_typed(clone, argvs, tell)
        self._judge_processes(way, tell)
        changes = users_home.difference(before, self.home.seen(clone.root))
        for name_, how in changes.items():
            tell("ran" if str(self.home.ran) in name_ else "changed", f"{name_} {how}")
        self._judge_logs(way, tell)
        if {one.what for one in found} & SPOILING:
            self._start_over()
        else:
            self.home.forget(clone.root)
        return found

    def _clone(self, name: str, way: Way) -> Clone:
        place = Path(tempfile.mkdtemp(dir=self.home.work))
        place.chmod(PASSABLE)
        root = place / "clone"
        rng = random.Random(f"{self._seed} {name}")
        clone = Clone(root, self.home.path, rng, self._identity(on_this_machine=way.as_root))
        catalogue.make(name, clone)
        (root / "beside.txt").write_text("beside\n")
        if way.as_root:
            _give_away(root)
        return clone

    def _identity(self, *, on_this_machine: bool) -> Victim:
        """What a stranger knows of a process; who made it elsewhere can only guess its number."""
        pid = self.victim.pid
        found = procfs.stat(pid)
        if not on_this_machine:
            return Victim(pid, found.start if found else 0, "", "")
        return Victim(pid, found.start if found else 0, procfs.boot(), procfs.namespace())

    def _calls(
        self, clone: Clone, way: Way, argvs: list[list[str]]
    ) -> Iterator[tuple[list[str], Said]]:
        created, env, run = "run00001", self._env(clone, way), self.clients.run
        if Way(way.host) in DEAR:
            self._start_seconds = 0.0
            alone = ["version", "--no-daemon"]
            self._start_seconds = self._start(alone, clone.root, env, KILL_AFTER).seconds
        if way.host == "library":
            yield from self._library.run(clone.root, env, self._start_seconds)
            return
        if way.host == "programs":
            argvs, run = PROCESSES, self._start
        for argv in argvs:
            words = [word.format(created=created) if word == "{created}" else word for word in argv]
            words.append(f"--timeout={DEADLINE:.0f}s")
            said = run(words, clone.root, env, patience(argv) + KILL_AFTER)
            if argv[:2] == ["run", "create"] and said.exit == 0:
                created = said.out.decode("ascii", "replace").strip() or created
            yield argv, said

    def _env(self, clone: Clone, way: Way) -> dict[str, str]:
        env = {"HOME": str(self.home.path), "INTERCORE_LOCK_DIR": f"{clone.clavain}/locks"}
        if way.is_served:
            return env | {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": self.served.daemon.socket}
        return env | {"INTERCORE_MODE": "direct"}

    def _start(self, argv: list[str], cwd: Path, env: dict[str, str], limit: float) -> Said:
        """A process of its own, as a shell starts it; its start is the machine's own time."""
        native = DOORS / "native" / "icctl"
        is_ours = self._code.root == ROOT and native.exists()
        command = [str(native), *argv] if is_ours else self._code.client(*argv)
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=cwd, env={**self._code.env, **env}, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Said(None, limit, b"", b"")
        seconds = time.monotonic() - began - self._start_seconds
        return Said(done.returncode, max(0.0, seconds), done.stdout, done.stderr)

    def _ask_typed(self, clone: Clone, argvs: list[list[str]], tell: Tell) -> None:
        """The same calls as JSON-RPC: a refusal has a name and a hint."""
        for argv in argvs:
            planned = commands_tried.planned_as(tuple(argv))
            if not isinstance(planned, Ask) or planned.call.method.writes or argv[0] == "wait":
                continue
            given = json.loads(msgspec.json.encode(planned.call.params))
            given |= {"cwd": str(clone.root), "deadline_ms": int(DEADLINE * 1000)}
            try:
                answer = self.served.daemon.respond(planned.call.method.name, **given)
            except RecursionError:
                continue  # it is for a decoder of more depth
            except (OSError, ValueError) as exc:
                tell("died", f"{planned.call.method.name} was not answered: {exc!r}")
                return
            if _is_unhelpful(answer.get("error")):
                tell("unhelpful", f"{planned.call.method.name}: {json.dumps(answer)}")

    # --- what may not be ---

    @contextlib.contextmanager
    def _watched(self, way: Way, tell: Tell) -> Iterator[list[float]]:
        """What the daemon does meanwhile; its caller notes how long each call took."""
        took: list[float] = []
        if not way.is_served:
            yield took
            return
        served = self.served
        with served.watched() as waited:
            yield took
        if not served.is_well():
            tell("died", served.daemon.log.read_text()[-500:])
            return
        if len(waited) > ENOUGH and _median(waited) > served.limit < served.remeasured():
            tell("slow neighbour", f"{_median(waited):.3f} s, else {served.baseline:.3f} s")
        if served.peak_kb() > MEMORY_KB:
            tell("memory", f"{served.peak_kb() / 1024:.0f} MB")
        if max(took) > DEADLINE / 2 and served.is_busy():
            tell("busy", "the daemon computes though nobody waits")

    def _judge_processes(self, way: Way, tell: Tell) -> None:
        left = self.clients.settle(LEFT_SECONDS)
        if way.is_served and self.served.is_well():
            left += self.served.children()
        for words in left:
            tell("ran", f"a process is left: {words}")
        state = procfs.stat(self.victim.pid)
        if self.victim.poll() is not None or state is None or state.is_stopped:
            tell("signalled", f"a process of the user's ended: {self.victim.returncode}")

    def _judge_logs(self, way: Way, tell: Tell) -> None:
        logs = self.home.own()
        if way.is_served and self._served is not None:
            logs.append(self._served.daemon.log)
        for log in logs:
            text = log.read_text("utf-8", "replace")
            new, self._read[log] = text[self._read.get(log, 0) :], len(text)
            if "Traceback" in new or "internal error" in new:
                raised = RAISED.findall(new.replace("\\n", "\n"))
                tell("traceback", f"{log.name}: {sorted(set(raised)) or new[-DETAIL:]}")
            if len(text) > users_home.OWN_BYTES:
                tell("changed", f"{log} grew to {len(text)} characters")


# Of memory, too, a daemon keeps what an earlier repository took (150 MB), until it is a new one.
MEASURED = {"late", "slow neighbour", "busy", "memory"}
# After these, the home, the daemon or the victim is no longer what the next repository needs.
SPOILING = {"changed", "ran", "signalled", "died", "memory", "slow neighbour", "busy"}


def _is_unhelpful(error: dict[str, Any] | None) -> bool:
    """A "no" may speak for itself; an error has to say what to do."""
    if error is None or error["data"]["exit"] != ERROR:
        return False
    return not (error["message"] and error["data"]["name"] and error["data"]["hint"])


def _median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]


def _give_away(root: Path) -> None:
    """To another user, with all that is in it but what is also somewhere else."""
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = os.path.join(directory, name)
            if os.lstat(path).st_nlink == 1 or os.path.isdir(path):
                os.lchown(path, STRANGER, STRANGER)
    os.lchown(root, STRANGER, STRANGER)
