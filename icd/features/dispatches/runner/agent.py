"""One agent, from its start to the record of its end.

Promises
    - the agent leads a session and a group of its own; all that it starts is found again, because
      orphans are given to the runner (PR_SET_CHILD_SUBREAPER);
    - when its time is up, or when the runner is told to end (SIGTERM), all of them are ended: TERM,
      a grace, KILL;
    - an agent that ends by itself leaves alone what it left running;
    - what it waits for, first of all the agent's own end, decides the outcome: an agent that has
      ended is not cancelled any more.
"""

import os
import time

from icd import procfs
from icd.features.dispatches.runner import IGNORED_BY_PYTHON, output_files, process_tree, signal
from icd.features.dispatches.runner.record import MAYBE, NO, Attempt, End, Recorder

# The client's word that it has recorded the start.
RECORDED = b"r"
# Until the start is recorded, look this often whether it is; our starter is quick, or dead.
TICK_SECONDS = 0.05
# Pauses between attempts to record the start ourselves double up to the last; it is not long, since
# a dispatch without a start is given up after a while.
START_PAUSE, LAST_START_PAUSE = 0.1, 5.0
# An end is not kept back longer than this.
START_SECONDS = 30.0
# Nothing happens by the clock when there is no limit; this only bounds a single wait.
IDLE_SECONDS = 3600.0
PROGRAMS = b"/usr/bin:/bin"

_STOPPING = (signal.SIGTERM, signal.SIGINT)
WATCHED = {signal.SIGCHLD, signal.SIGHUP, *_STOPPING}


class Refused(Exception):
    """Why an agent cannot be started, as a sentence."""


class Job:
    """What a client tells its runner; words and paths are as the operating system has them.

    `log`: where stdout and stderr go.  `is_own`: the caller named the program.
    `is_default`: the client made up the name of the output.  `timeout_ms`: 0 is no limit.
    """

    id: str
    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    stdin: bytes
    log: bytes
    output: bytes
    database: bytes
    client: list[bytes]
    is_own: bool
    is_default: bool
    timeout_ms: int

    def __init__(self, **told: object) -> None:
        self.__dict__.update(told)


class Agent:
    def __init__(self, job: Job, mask: set[int]) -> None:
        self._job = job
        self._mask = mask
        self._recorder = Recorder(job.id, job.database, job.client, job.env, mask)
        self._verdict, self._summary = job.output + b".verdict", job.output + b".summary"
        self._before = output_files.mark(self._verdict), output_files.mark(self._summary)
        self._log: output_files.Mark = None
        self._control = -1
        self._attempt: Attempt | None = None  # a client that records our start
        self._attempt_at: float | None = None  # when to start one
        self._pause = START_PAUSE
        self._is_unwanted = False  # it was cancelled before
        self._deadline: float | None = None
        self.pid = 0
        self._started = 0

    def start(self) -> None:
        job = self._job
        stdin = _open(job.stdin or os.fsencode(os.devnull), os.O_RDONLY)
        # A name that we made up lies where others may write.
        fresh, mode = (os.O_EXCL | os.O_NOFOLLOW, 0o600) if job.is_default else (os.O_TRUNC, 0o666)
        log = _open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, mode)
        try:
            os.chdir(job.cwd)
        except OSError as exc:
            raise Refused(f"cannot enter {os.fsdecode(job.cwd)}: {exc.strerror}") from exc
        if not job.is_own:
            _search_absolute()
        began_ns = time.time_ns()
        self._spawn(stdin, log)
        self._log = output_files.mark(log)
        for fd in (stdin, log):
            os.close(fd)
        os.chdir("/")  # pin no directory
        output_files.clear_progress(self.pid, began_ns)
        self._started = _start_of(self.pid)
        if job.timeout_ms:
            self._deadline = time.monotonic() + job.timeout_ms / 1000

    def _spawn(self, stdin: int, log: int) -> None:
        argv = self._job.argv
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                self._job.env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate((stdin, log, log))
                ],
                setsid=True,
                setsigmask=self._mask,
                setsigdef=IGNORED_BY_PYTHON,
            )
        except OSError as exc:
            raise Refused(f"cannot start {os.fsdecode(argv[0])}: {exc.strerror}") from exc

    def processes(self) -> dict[str, int]:
        """Which processes run, in the words of `dispatch record`."""
        return {
            "pid": self.pid,
            "pid-start": self._started,
            "runner-pid": os.getpid(),
            "runner-start": _start_of(os.getpid()),
        }

    def run_to_end(self, control: int) -> None:
        """Wait for the end, or bring it about, and have it recorded."""
        self._control = control
        os.set_blocking(control, False)
        why = self._wait()
        if why:
            process_tree.terminate(lambda: process_tree.descendants(os.getpid()))
        # Only now: until it is counted, no other process can have its number.
        status = os.waitpid(self.pid, 0)[1]
        end = self._end(why, status, time.time_ns() // 1_000_000)
        self._recorder.keep(end)
        self._wait_for_start()
        self._recorder.ended(end)

    def _wait(self) -> str:
        """Wait until the agent ends, or has to; then why."""
        while True:
            self._listen()
            self._record_start()
            left = IDLE_SECONDS if self._control < 0 else TICK_SECONDS
            for moment in (self._deadline, self._attempt_at):
                if moment is not None:
                    left = min(left, max(0.0, moment - time.monotonic()))
            got = signal.sigtimedwait(WATCHED, left)
            if self._has_ended():
                return ""
            if self._is_unwanted or (got is not None and got.si_signo in _STOPPING):
                return "cancelled"
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return "timeout"

    def _has_ended(self) -> bool:
        """Count orphans; the agent itself stays to be counted."""
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return False
            if found.si_pid == self.pid:
                return True
            status = os.waitpid(found.si_pid, 0)[1]
            if self._attempt is not None and found.si_pid == self._attempt.pid:
                self._answered(self._attempt.answer(status))

    def _listen(self) -> None:
        """Hear whether our starter has recorded the start; if it left without a word, we do."""
        if self._control < 0:
            return
        try:
            word = os.read(self._control, 1)
        except BlockingIOError:
            return
        os.close(self._control)
        self._control = -1
        if word != RECORDED:
            self._attempt_at = time.monotonic()

    def _record_start(self) -> None:
        """Record the start ourselves when it is time to."""
        if self._attempt_at is None or time.monotonic() < self._attempt_at:
            return
        self._attempt_at = None
        known = {**self.processes(), "boot": procfs.boot(), "pidns": procfs.namespace()}
        self._attempt = self._recorder.attempt([f"--{name}={v}" for name, v in known.items()])
        if self._attempt is None:
            self._answered(MAYBE)

    def _answered(self, answer: str) -> None:
        self._attempt = None
        self._is_unwanted = answer == NO
        if answer == MAYBE:
            self._attempt_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, LAST_START_PAUSE)

    def _wait_for_start(self) -> None:
        """Let the start be recorded before the end; but the process that is to do so may hang."""
        until = time.monotonic() + START_SECONDS
        while self._control >= 0 and time.monotonic() < until:
            self._listen()
            time.sleep(TICK_SECONDS / 10)
        self._record_start()

    def _end(self, why: str, status: int, ended_ms: int) -> End:
        code = os.waitstatus_to_exitcode(status)
        verdict, summary = output_files.verdict(self._verdict, self._before[0])
        used = output_files.tokens(self._summary, self._before[1])
        return {
            "id": self._job.id,
            "status": why or ("failed" if code else "completed"),
            "exit_code": code if code >= 0 else 128 - code,  # as shells have it
            "verdict_status": verdict,
            "verdict_summary": summary,
            "error_message": self._message(why, code),
            "input_tokens": used[0],
            "output_tokens": used[1],
            **output_files.progress(self.pid),
            "ended_ms": ended_ms,
        }

    def _message(self, why: str, code: int) -> str | None:
        if why == "timeout":
            return f"took longer than {self._job.timeout_ms / 1000:g} s, and was killed"
        if why == "cancelled":
            return "was asked to stop"
        if code < 0:
            return f"was killed by signal {-code} ({signal.strsignal(-code)})"
        # Why it failed: most programs say so at last.
        said = output_files.last_lines(self._job.log, self._log) if code else ""
        return f"exit status {code}: {said}" if said else None


def _open(path: bytes, flags: int, mode: int = 0) -> int:
    try:  # a pipe that no process reads is refused instead of waited for
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode)
        os.set_blocking(fd, True)
    except OSError as exc:
        raise Refused(f"cannot open {os.fsdecode(path)}: {exc.strerror}") from exc
    return fd


def _start_of(pid: int) -> int:
    found = procfs.stat(pid)
    return found.start if found else 0


def _search_absolute() -> None:
    """Look for programs in no directory that is relative, and so would lie in the project.

    Only ours: the agent keeps the variable as its caller has it.
    """
    found = [each for each in os.environb.get(b"PATH", b"").split(b":") if each.startswith(b"/")]
    os.environb[b"PATH"] = b":".join(found) or PROGRAMS
