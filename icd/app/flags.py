"""Flags that every command understands, before or after the verb."""

from collections.abc import Sequence

import msgspec

from icd.durations import duration_ms
from icd.errors import Usage

_SWITCHES = {
    *("--json", "--plain", "--absolute", "--verbose", "--no-daemon", "--if-database"),
    *("--json-errors", "--help", "-h"),
}
_VALUED = {"--db", "--timeout"}


class Flags(msgspec.Struct):
    words: list[str]
    db: str | None = None
    timeout_ms: int | None = None
    json: bool = False
    plain: bool = False
    absolute: bool = False
    verbose: bool = False
    no_daemon: bool = False
    if_database: bool = False
    json_errors: bool = False
    help: bool = False


def strip(argv: Sequence[str]) -> Flags:
    """Take the global flags out of a command line; what follows `--` is left alone."""
    found = Flags(words=[])
    _refuse_bytes(argv)
    rest = iter(argv)
    for word in rest:
        if word == "--":
            found.words += [word, *rest]
            break
        flag, equals, value = word.partition("=")
        if word in _SWITCHES:
            _switch(found, word)
        elif flag in _VALUED:
            _set(found, flag, value if equals else next(rest, None))
        else:
            found.words.append(word)
    return found


def _refuse_bytes(argv: Sequence[str]) -> None:
    """Arguments come as the operating system has them; JSON and SQLite want text."""
    for position, word in enumerate(argv, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            sentence = f"argument {position} is not valid UTF-8"
            raise Usage(sentence, hint="pass text in UTF-8") from None


def _switch(found: Flags, word: str) -> None:
    name = "help" if word == "-h" else word[2:].replace("-", "_")
    setattr(found, name, True)


def _set(found: Flags, flag: str, value: str | None) -> None:
    if value is None:
        shape = "PATH" if flag == "--db" else "DURATION"
        raise Usage(f"{flag} needs a value", hint=f"write {flag}={shape}")
    if flag == "--db":
        found.db = value
        return
    timeout_ms = duration_ms(value)
    if timeout_ms is None:
        raise Usage(f"invalid timeout: {value}", hint="use 500ms, 5s, 1m or seconds")
    if timeout_ms < 0:
        raise Usage(f"the timeout {value} is negative", hint="use 500ms, 5s, 1m or seconds")
    found.timeout_ms = timeout_ms or None  # zero means the default, as it always has
