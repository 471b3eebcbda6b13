"""How far long work in this process is, in one line on stderr, for a person who waits.

Loaded only if stderr is a terminal; what it draws with, only for long work.  A command declares in
its row what takes long (`Runs.long`), and may tell how much of it is done; it draws nothing itself.

Promises
    - nothing is drawn for what is done within half a second, with --json or --plain, on a terminal
      that cannot go back to the start of a line, or from the background;
    - the line is gone before anything else is printed, also if the work fails;
    - the work does not wait for it: telling is an assignment, and a thread of its own draws.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from icctl import client
from icd.app import registry
from icd.app.call import Answer, Call

STDERR = 2
PATIENCE_SECONDS = 0.5
BETWEEN_SECONDS = 0.1
CELLS = 24
TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
# To the start of the line, and nothing behind the cursor.
_WIPE = "\r\x1b[K"

Answering = Callable[[Call], Answer]


def shown(answer: Answering, argv: list[str]) -> Answering:
    """The same, with a line for a person while a long call runs."""
    if not _wants(argv):
        return answer

    since = 0.0  # of the first of several calls: people wait for all of them

    def answer_and_show(call: Call) -> Answer:
        nonlocal since
        runs = call.method.runs
        if not (runs.long and runs.is_long(call.params)):
            return answer(call)
        since = since or time.monotonic()
        with Line(runs.long, since) as call.progress:
            return answer(call)

    return answer_and_show


def of_daemon(request: client.Request, limit: float) -> int | None:
    """Have the daemon do what it keeps in memory for all, with the line here; the exit status.

    None: it is to be done here, because it is something else, or there is no daemon.
    """
    if isinstance(request, _Watched):
        return None
    words, flags = client.typed(request.argv)
    method = registry.find(".".join(words[:2]))
    if method is None or not (method.runs.long and method.runs.apart) or "--no-daemon" in flags:
        return None
    if client.chosen_mode(words) == b"direct":
        return None
    is_alone = client.chosen_mode(words) == b"daemon"
    with Line(method.runs.long if _wants(request.argv) else "") as line:
        watched = _Watched(request, line)
        return client.insist(watched, limit, time.monotonic() + limit, alone=is_alone)


class _Watched(client.Request):
    """The same request, for a daemon that need not know that a person waits."""

    def __init__(self, request: client.Request, line: "Line") -> None:
        self.__dict__.update(request.__dict__)
        self.fields = [f[:3] + b"0" if f[:1] == b"y" else f for f in request.fields]
        self._line = line

    def deliver(self, out: bytes, err: bytes) -> bool:
        self._line.wipe()
        return super().deliver(out, err)

    def run_here(self, limit: float) -> int:
        self._line.wipe()
        return super().run_here(limit)


def _wants(argv: list[str]) -> bool:
    _, flags = client.typed(argv)
    is_for_scripts = "--json" in flags or "--plain" in flags
    return not is_for_scripts and os.environ.get("TERM", "dumb") not in {"", "dumb"}


class Line:
    """Is told how far the work is; draws that until the end of the block."""

    def __init__(self, what: str, began: float | None = None) -> None:
        import threading

        self._what = what  # empty: nothing is drawn
        self._now = (0, 0, "")
        self._began = time.monotonic() if began is None else began
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __call__(self, done: int, total: int, what: str) -> None:
        self._now = done, total, what

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wipe()

    def wipe(self) -> None:
        """Draw nothing more."""
        self._end.set()
        self._thread.join()

    def _draw(self) -> None:
        import signal

        # The one who waits for a lock is woken by a signal, and that is not this thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        patience = self._began + PATIENCE_SECONDS - time.monotonic()
        if not self._what or self._end.wait(max(patience, 0.0)):
            return
        from icd.app.human.text import cut

        turn = 0
        while not self._end.wait(BETWEEN_SECONDS if turn else 0):
            if _is_in_front():
                _write(_WIPE + cut(self._line(turn), _columns() - 1))
            turn += 1
        if _is_in_front():
            _write(_WIPE)

    def _line(self, turn: int) -> str:
        from icd.app.human.kinds import bar, in_words

        done, total, what = self._now
        sign = TURNING[turn % len(TURNING)]
        waited = in_words(int(time.monotonic() - self._began))
        if not total:
            return f"{sign} {what or self._what}  {waited}"
        part = min(done / total, 1.0)
        return f"{sign} {what or self._what} {bar(part, CELLS)} {int(100 * part):3}%  {waited}"


def _columns() -> int:
    with suppress(OSError):
        return os.get_terminal_size(STDERR).columns or 80
    return 80


def _is_in_front() -> bool:
    """Work in the background leaves the terminal to whatever is in front."""
    try:
        return os.tcgetpgrp(STDERR) == os.getpgrp()
    except OSError:  # it is not ours, or has gone
        return os.isatty(STDERR)


def _write(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone, and the work goes on
        os.write(STDERR, text.encode())
