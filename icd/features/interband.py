"""A row of state as an interband envelope: the file that other programs read.

`<root>/<namespace>/<channel>/<file>`, where the file is named after the row's scope by the rule
that every reader uses.  Different scopes can come to the same file; the caller decides who wins.
"""

import re

import msgspec
from msgspec import Raw, Struct

from icd import config
from icd.db.rows import WrongValue, document
from icd.features.state.store import Row
from icd.values.wire import iso

VERSION = "1.0.0"
SOURCE = "intercore"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class Channel(Struct, frozen=True):
    """Where the rows of one key go, with nothing left open."""

    namespace: str
    name: str
    type: str
    session_is_scope: bool
    retention_ms: int

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"


class Envelope(Struct):
    """`source` and `origin` are ours; readers ignore members that they do not know."""

    version: str
    namespace: str
    type: str
    session_id: str
    timestamp: str
    source: str
    origin: str
    payload: Raw


class Mark(Struct):
    """What tells our files from those of others."""

    source: str = ""
    origin: str = ""


def channels(settings: config.Mirror) -> dict[str, Channel]:
    """The channels that are in use, by the key whose rows they carry."""
    if settings.enabled is False:
        return {}
    chosen = {**config.CHANNELS, **settings.channels}
    return {
        key: _channel(config.complete(key, channel))
        for key, channel in chosen.items()
        if channel.enabled
    }


def file_name(scope_id: str) -> str | None:
    """None for the empty scope: no reader looks for a file without a name."""
    return _UNSAFE.sub("_", scope_id) + ".json" if scope_id else None


def until_ms(row: Row, channel: Channel) -> int | None:
    """When the file must be gone: the row expires, or was not written for too long."""
    moments = [] if row.expires_ms is None else [row.expires_ms]
    if channel.retention_ms:
        moments.append(row.updated_at * 1000 + channel.retention_ms)
    return min(moments, default=None)


def envelope(row: Row, channel: Channel, *, origin: str) -> bytes:
    session = row.scope_id if channel.session_is_scope else row.writer_session or ""
    found = Envelope(
        version=VERSION,
        namespace=channel.namespace,
        type=channel.type,
        session_id=session,
        timestamp=_time(row.updated_at),
        source=SOURCE,
        origin=_text(origin),
        payload=document(row.payload),
    )
    return msgspec.json.encode(found) + b"\n"


def _time(seconds: int) -> str:
    """A stranger's row may hold a time that no calendar has; it must not end the mirror."""
    try:
        return iso(seconds)
    except WrongValue:
        return iso(0)


def is_from(content: bytes, origin: str) -> bool:
    """Whether we wrote this, for that database."""
    mark = read_mark(content)
    return mark.source == SOURCE and mark.origin == _text(origin)


def read_mark(content: bytes) -> Mark:
    try:
        return _mark.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Mark()


_mark = msgspec.json.Decoder(Mark)


def _text(path: str) -> str:
    """JSON has no room for a path that is not text."""
    return path.encode("utf-8", "backslashreplace").decode()


def _channel(complete: config.Channel) -> Channel:
    namespace, _, name = (complete.path or "").partition("/")
    return Channel(
        namespace=namespace,
        name=name,
        type=complete.type or name,
        session_is_scope=complete.session == "scope",
        retention_ms=(complete.retention_seconds or 0) * 1000,
    )
