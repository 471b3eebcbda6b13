"""The runner: a small process that starts one agent, waits for it, and records how it ended.

It is nobody's child, in nobody's session, and holds nothing of its caller but the environment and
the limits, so neither a daemon nor a shell nor a terminal takes it away.  `launching` starts it and
talks to it over two pipes: on stdin comes the job, and later the word that the agent's start is
recorded; on stdout goes the start, or why there is none.

Promises
    - the agent leads a session and a group of its own; all that it starts is found again, because
      orphans are given to the runner (PR_SET_CHILD_SUBREAPER);
    - when its time is up, or when the runner is told to end (SIGTERM), all of them are ended: TERM,
      a grace, KILL;
    - an agent that ends by itself leaves alone what it left running;
    - what it waits for, first of all the agent's own end, decides the outcome: an agent that has
      ended is not cancelled any more.

Everything is loaded at the start: what is installed may be another version by the time it ends.
"""

import os
import time

from icd.features.dispatches.agent import settling, traces, trees
from icd.features.dispatches.agent.recording import MAYBE, NO, Attempt, End, Recorder
from icd.features.dispatches.agent.signals import (
    IGNORED_BY_PYTHON,
    SIG_BLOCK,
    SIG_DFL,
    SIGCHLD,
    SIGHUP,
    SIGINT,
    SIGTERM,
    pthread_sigmask,
    signal,
    sigtimedwait,
    strsignal,
)

RECORDED = b"r"
# Until the start is recorded, look this often whether it is; our starter is quick, or dead.
TICK_SECONDS = 0.05
# Pauses between attempts to record the start ourselves double up to the last; it is not long, since
# whoever finds our starter dead gives up hope after a while.
NOTE_PAUSE, LAST_NOTE_PAUSE = 0.1, 5.0
# An end is not kept back longer than this.
START_SECONDS = 30.0
# Nothing happens by the clock when there is no limit; this only bounds a single wait.
IDLE_SECONDS = 3600.0

_STOPPING = (SIGTERM, SIGINT)
_WATCHED = {SIGCHLD, SIGHUP, *_STOPPING}


def main() -> None:
    control, to = settling.settle()
    try:
        job, env = settling.receive(control), settling.environment()
        mask = {int(number) for number in pthread_sigmask(SIG_BLOCK, _WATCHED)}
        signal(SIGCHLD, SIG_DFL)  # whoever started us may have ignored it, and so lost its children
        settling.adopt_orphans()
        agent = Agent(job, env, mask)
        agent.start()
    except Exception as exc:  # noqa: BLE001 -- told to whoever waits for it
        settling.report(to, {"error": settling.sentence(exc)})
        os._exit(1)
    settling.report(
        to,
        {
            "pid": agent.pid,
            "start": agent.started,
            "runner": os.getpid(),
            "runner_start": settling.own_start(),
        },
    )
    agent.see_off(control)
    os._exit(0)


class Agent:
    """One agent, from its start to the record of its end."""

    def __init__(self, job: dict[str, object], env: dict[bytes, bytes], mask: set[int]) -> None:
        self._job = job
        self._env = env
        self._mask = mask
        self._recorder = Recorder(job, env, mask)
        output: bytes = job["output"]  # type: ignore[assignment]
        self._verdict, self._summary = output + b".verdict", output + b".summary"
        self._before = traces.mark(self._verdict), traces.mark(self._summary)
        self._log: traces.Mark = None
        self._control = -1
        self._noting: Attempt | None = None  # a client that records our start
        self._note_at: float | None = None  # when to start one
        self._pause = NOTE_PAUSE
        self._is_unwanted = False  # it was cancelled before
        self._deadline: float | None = None
        self.pid = 0
        self.started = 0

    def start(self) -> None:
        job = self._job
        argv: list[bytes] = job["argv"]  # type: ignore[assignment]
        stdin = settling.open_file(job["stdin"] or os.fsencode(os.devnull), os.O_RDONLY)
        # A name that we made up lies where others may write.
        ours = job["is_default"]
        fresh, mode = (os.O_EXCL | os.O_NOFOLLOW, 0o600) if ours else (os.O_TRUNC, 0o666)
        log = settling.open_file(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, mode)
        settling.enter(job["cwd"])
        if not job["is_own"]:
            settling.search_absolute()
        began_ns = time.time_ns()
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                argv,
                self._env,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate((stdin, log))]
                + [(os.POSIX_SPAWN_DUP2, log, 2)],
                setsid=True,
                setsigmask=self._mask,
                setsigdef=IGNORED_BY_PYTHON,
            )
        except OSError as exc:
            raise settling.Refused(f"cannot start {os.fsdecode(argv[0])}: {exc.strerror}") from exc
        self._log = traces.mark_of(os.fstat(log))
        for fd in (stdin, log):
            os.close(fd)
        os.chdir("/")  # pin nobody's directory
        traces.clear_progress(self.pid, began_ns)
        found = trees.look(self.pid)
        self.started = found.start if found else 0
        limit: int = job["timeout_ms"]  # type: ignore[assignment]
        self._deadline = time.monotonic() + limit / 1000 if limit else None

    def see_off(self, control: int) -> None:
        self._control = control
        os.set_blocking(control, False)
        why = self._wait()
        if why:
            trees.end(lambda: trees.below(os.getpid()))
        # Only now: until it is counted, nobody else can have its number.
        status = os.waitpid(self.pid, 0)[1]
        end = self._end(why, status, time.time_ns() // 1_000_000)
        self._recorder.keep(end)
        self._let_start_be_recorded()
        self._recorder.ended(end)

    def _wait(self) -> str:
        """Until the agent ends, or has to; then why."""
        while True:
            self._listen()
            self._note()
            left = IDLE_SECONDS if self._control < 0 else TICK_SECONDS
            for moment in (self._deadline, self._note_at):
                if moment is not None:
                    left = min(left, max(0.0, moment - time.monotonic()))
            got = sigtimedwait(_WATCHED, left)
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
            if self._noting is not None and found.si_pid == self._noting.pid:
                self._noted(self._noting.answer(status))

    def _listen(self) -> None:
        """Whether our starter has recorded the start; if it has left without a word, we do."""
        if self._control < 0:
            return
        try:
            word = os.read(self._control, 1)
        except BlockingIOError:
            return
        os.close(self._control)
        self._control = -1
        if word != RECORDED:
            self._note_at = time.monotonic()

    def _note(self) -> None:
        """Record the start ourselves when it is time to."""
        if self._note_at is None or time.monotonic() < self._note_at:
            return
        self._note_at = None
        self._noting = self._recorder.started(
            [
                f"--pid={self.pid}",
                f"--pid-start={self.started}",
                f"--runner-pid={os.getpid()}",
                f"--runner-start={settling.own_start()}",
                *settling.place(),
            ]
        )
        if self._noting is None:
            self._noted(MAYBE)

    def _noted(self, answer: str) -> None:
        self._noting = None
        self._is_unwanted = answer == NO
        if answer == MAYBE:
            self._note_at = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, LAST_NOTE_PAUSE)

    def _let_start_be_recorded(self) -> None:
        """First things first; but whoever is to do so may hang."""
        until = time.monotonic() + START_SECONDS
        while self._control >= 0 and time.monotonic() < until:
            self._listen()
            time.sleep(TICK_SECONDS / 10)
        self._note()

    def _end(self, why: str, status: int, ended_ms: int) -> End:
        code = os.waitstatus_to_exitcode(status)
        verdict, summary = traces.verdict(self._verdict, self._before[0])
        used = traces.tokens(self._summary, self._before[1])
        return {
            "id": str(self._job["id"]),
            "status": why or ("failed" if code else "completed"),
            "exit_code": code if code >= 0 else 128 - code,  # as shells have it
            "verdict_status": verdict,
            "verdict_summary": summary,
            "error_message": self._message(why, code),
            "input_tokens": used[0],
            "output_tokens": used[1],
            **traces.progress(self.pid),
            "ended_ms": ended_ms,
        }

    def _message(self, why: str, code: int) -> str | None:
        if why == "timeout":
            return f"took longer than {int(str(self._job['timeout_ms'])) / 1000:g} s, and was ended"
        if why == "cancelled":
            return "was told to end"
        if code < 0:
            return f"was ended by signal {-code} ({strsignal(-code)})"
        return self._last_words(code) if code else None

    def _last_words(self, code: int) -> str | None:
        """Why it failed: most programs say so at last."""
        path: bytes = self._job["log"]  # type: ignore[assignment]
        said = traces.last_lines(path, self._log)
        return f"exit status {code}: {said}" if said else None
