"""The caller's world, as the checks see it, and how the daemon is seen from there."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from icd.db.paths import Where

Outcome = Literal[
    "answers",  # a daemon of ours, with its report
    "silent",  # somebody listens and does not answer in time
    "nonsense",  # somebody listens and is no daemon
    "refused",  # nobody listens at what lies there
    "absent",  # nothing lies there
    "forbidden",  # we may not even try
    "stranger",  # another user listens
    "ignored",  # another user could have put it there, so no call uses it; `error` says why
    "too long",  # no path of a socket
    "failed",  # anything else; `error` says what
]


class Seen(Struct, frozen=True):
    """What came of asking at one path."""

    path: str
    outcome: Outcome
    error: str = ""
    pid: int | None = None
    report: dict[str, Any] | None = None


class Sight(Struct, frozen=True):
    """How to look at sockets: the client's business, since nothing down here knows any.

    `look` asks at every path where a daemon may listen, until a moment of the monotonic clock.
    `clear` removes a socket where nobody listens, and says why not, else the empty string.
    """

    look: Callable[[float], list[Seen]]
    clear: Callable[[str], str]


class Scene(Struct, frozen=True):
    where: Where
    env: dict[str, str]
    uid: int
    now_ms: int
    deadline: float
    door: str
    library: str  # where this installation has lib-intercore.sh
    units: Callable[[], dict[str, str]]  # those that start the daemon, and what lies there
    sight: Sight | None = None

    @property
    def home(self) -> str | None:
        return self.env.get("HOME") or None
