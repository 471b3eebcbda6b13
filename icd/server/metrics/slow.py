"""One line in the log for each slow call, and a limit to how many there can be.

The line says who asked for what, and where the time went; never a payload or an argument.
Invariant: at most `LINES` lines in a window of `WINDOW_SECONDS`, which begins with a line; the next
line tells how many calls were left out, and `count` has them all.
"""

from icd.app.call import Call
from icd.server.logs import log, one_line

# A storm of slow calls is one piece of news; a line is some 300 bytes, so a day of it is 9 MB.
LINES = 20
WINDOW_SECONDS = 60.0
# Of what callers call their places and their sessions, which may be anything.
NAME_CHARACTERS = 300


class Slow:
    def __init__(self, slow_ms: int) -> None:
        self.seconds = slow_ms / 1000
        self.count = 0
        self._window = -WINDOW_SECONDS  # when the lines began to be counted
        self._lines = 0
        self._left_out = 0

    def note(self, call: Call, took: float, error: str, *, now: float) -> None:
        """`now`: monotonic, as the call's own times are."""
        self.count += 1
        if now - self._window >= WINDOW_SECONDS:
            self._window, self._lines = now, 0
        if self._lines >= LINES:
            self._left_out += 1
            return
        self._lines += 1
        log.warning("slow call", extra=self._facts(call, took, error, now))
        self._left_out = 0

    def _facts(self, call: Call, took: float, error: str, now: float) -> dict[str, object]:
        facts: dict[str, object] = {
            "method": call.method.name,
            # As the caller named it.
            "database": one_line(call.where.explicit or call.where.cwd, NAME_CHARACTERS),
            "ms": round(took * 1000, 1),
        }
        if call.ran_at:  # else it never got as far as that
            ran = now - call.ran_at
            facts |= {"waited_ms": round((took - ran) * 1000, 1), "ran_ms": round(ran * 1000, 1)}
        facts["pid"] = call.writer.pid
        if call.writer.session:
            facts["session"] = one_line(call.writer.session, NAME_CHARACTERS)
        if error:
            facts["error"] = error
        if self._left_out:
            facts["left_out"] = self._left_out
        return facts
