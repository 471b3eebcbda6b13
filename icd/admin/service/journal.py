"""The daemon's log, read from the journal of systemd, for people and for programs."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from icd.admin.service import systemd
from icd.admin.service.verbs import Logs
from icd.app.invocation import Output, World
from icd.errors import ServiceFailed
from icd.printable import escaped

# About a screen or two; --lines and --since ask for more.
LINES = 100
# Not --user: where the journal is not kept per user, the lines are in that of the system.
_JOURNALCTL = (
    "journalctl", "--user-unit=icd.service", "--output=json", "--quiet", "--no-pager",
)  # fmt: skip
# The levels of syslog, from 0; ours has five names for them.
_LEVELS = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")


def logs(world: World, f: Logs) -> Output:
    shown = as_json if world.json else as_text
    words = [f"--since={f.since}"] if f.since else []
    if f.lines or not f.since:
        words.append(f"--lines={f.lines or LINES}")
    if f.follow:
        return Output(0, more=_encoded(map(shown, _follow(world.env, *words))))
    found = list(_encoded(map(shown, _journal(world.env, *words))))
    told = Output(0, b"".join(found))
    if not found:
        nothing = "warning: the journal has no entries of icd.service"
        told.stderr = f"{world.program}: service logs: {nothing}\n".encode()
    return told


def _encoded(lines: Iterator[str | None]) -> Iterator[bytes]:
    return (f"{text}\n".encode("utf-8", "replace") for text in lines if text is not None)


class _Entry(Struct):
    """What we read of a line; a message that is not text comes as bytes, a huge one as null."""

    message: str | list[int] | None = field(default=None, name="MESSAGE")
    moment: str = field(default="0", name="__REALTIME_TIMESTAMP")
    priority: str = field(default="6", name="PRIORITY")
    source: str = field(default="", name="SYSLOG_IDENTIFIER")


def _journal(env: Mapping[str, str], *words: str) -> list[str]:
    """Lines of JSON, oldest first."""
    done = systemd.run(env, *_JOURNALCTL, *words)
    if done.returncode:
        raise ServiceFailed(
            f"journalctl failed: {systemd.last_line(done.stderr)}", hint=systemd.NO_JOURNAL
        )
    return done.stdout.splitlines()


def _follow(env: Mapping[str, str], *words: str) -> Iterator[str]:
    """Lines of JSON as they come, until the caller wants no more."""
    with subprocess.Popen(  # noqa: S603 -- the words are ours
        systemd.found_program(env, (*_JOURNALCTL, *words, "--follow")), env=systemd.quiet(env),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="surrogateescape",
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield from process.stdout
        finally:
            process.terminate()


def as_text(line: str) -> str | None:
    """`time level message name=value…`, and a traceback below it; None: not an entry.

    It is for a terminal, so what could command one is spelled out.
    """
    found = _decoded(line)
    if found is None:
        return None
    seconds, facts = found
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    said = {name: value for name, value in facts.items() if name not in {"time", "level", "msg"}}
    traceback = str(said.pop("traceback", ""))
    words = [clock, facts["level"], facts["msg"], *(f"{n}={_word(v)}" for n, v in said.items())]
    lines = [" ".join(map(str, words)), *(f"    {text}" for text in traceback.splitlines())]
    return "\n".join(map(escaped, lines))


def as_json(line: str) -> str | None:
    """The daemon's own line as it is; those of others in the same shape."""
    found = _decoded(line)
    return None if found is None else msgspec.json.encode(found[1]).decode()


def _decoded(line: str) -> tuple[float, dict[str, Any]] | None:
    """When it was written, and its facts: ours are JSON inside JSON, and systemd adds its own."""
    try:
        entry = msgspec.json.decode(line.encode("utf-8", "replace"), type=_Entry)
    except (msgspec.DecodeError, RecursionError):
        return None
    message, seconds = entry.message, int(entry.moment) / 1_000_000
    text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else message or ""
    try:
        facts = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        facts = None
    if not (isinstance(facts, dict) and facts.keys() >= {"level", "msg"}):
        facts = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "level": _LEVELS[min(int(entry.priority), 7)],
            "msg": text,
            "source": entry.source,
        }
    return seconds, facts


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
