"""One call: what is sent, which reply is its own, and what came of it.

Parameters become JSON once, for both hosts: the daemon reads them from its socket, and direct mode
reads the same bytes in this process.  A parameter that has its default is not sent,
so that an older daemon understands what it can.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from functools import cache
from math import isfinite
from threading import Lock
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from icctl.api.errors import Error, from_error, from_wire
from icd.app import registry
from icd.app.idempotency import MAX_DEADLINE_MS
from icd.app.invocation import WORD_CHARACTERS, session_of
from icd.app.verb import Method
from icd.durations import duration_ms
from icd.errors import BadPath, DeadlineExceeded, IcError, InvalidParams, UnknownOutcome
from icd.server.limits import MESSAGE_BYTES

T = TypeVar("T")

# A number of seconds, a text such as "5m", or a timedelta.
Duration = float | str | timedelta
# What JSON can say; a msgspec.Raw is taken byte for byte.
Json = Any
Mode = Literal["auto", "daemon", "direct"]

DEFAULT_SECONDS = 5.0
SEARCH_SECONDS = 10.0  # comparing takes longer
MAX_SECONDS = MAX_DEADLINE_MS / 1000
# The daemon is told to be done a little before we stop listening, so that its "no" arrives.
MARGIN_SECONDS = 0.5
ENVELOPE_BYTES = 1024  # of a request around its parameters

_encode = msgspec.json.Encoder().encode
# What the encoder raises, and Python's arithmetic.
_UNTOLD = (TypeError, ValueError, OverflowError, RecursionError, msgspec.EncodeError)
_BYTES = (bytes, bytearray, memoryview)
# JSON has all their values; those of a float, if there is no "null" in what came of them.
_PLAIN: frozenset[type] = frozenset({str, int, bool, type(None), Raw})
_NUMBERS = _PLAIN | {float}


class _Failure(Struct):
    code: int
    message: str
    data: dict[str, Any] = {}


class Response(Struct):
    """A line of the daemon: a reply, or a notification of a stream."""

    id: int | str | float | None = None
    result: Raw | UnsetType = UNSET
    error: _Failure | UnsetType = UNSET
    method: str = ""
    params: Raw = Raw(b"{}")


decode_response = msgspec.json.Decoder(Response).decode


# --- methods --------------------------------------------------------------------------------------


class Spec:
    """What is known of a method: its row, and how its parameters and results are read."""

    def __init__(self, method: Method[Any, Any]) -> None:
        self.method = method
        self.name = method.name
        self.is_local = method.runs.local
        self.changes = bool(method.writes or method.runs.whole or method.name == "icd.reload")
        self.keeps_ids = method.writes is not None
        self.seconds = SEARCH_SECONDS if method.name == "discovery.search" else DEFAULT_SECONDS
        self.head = b',"method":"%b","params":' % method.name.encode()
        fields = msgspec.structs.fields(method.params)
        self.defaults = {field.name: field.default for field in fields if not field.required}
        self.of_bytes = {field.name for field in fields if _takes_bytes(field.type)}
        self.read_params = msgspec.json.Decoder(method.params).decode
        self.read_result = msgspec.json.Decoder(method.result).decode

    def given(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that say something."""
        known = self.defaults
        return {
            name: value
            for name, value in params.items()
            if name not in known or (value is not None and value != known[name])
        }


# msgspec keeps what it finds out about a struct in its class, from the moment it begins: a second
# thread that decodes such a struct meanwhile finds half of it, and the process dies.
_looking = Lock()


@cache
def spec(name: str) -> Spec:
    with _looking:
        method = registry.find(name)
        assert method is not None, f"the client was made for other verbs: {name}"
        return Spec(method)


# --- values ---------------------------------------------------------------------------------------


def _invalid(told: str, hint: str = "") -> Error:
    return from_error(InvalidParams(told, hint=hint))


def _takes_bytes(hint: Any) -> bool:
    """Whether a parameter is bytes, such as an embedding; JSON has them in base64."""
    return hint is bytes or any(map(_takes_bytes, get_args(hint)))


def _encode_all(name: str, given: dict[str, Any], of_bytes: Collection[str] = ()) -> bytes:
    """As JSON that says the same: the encoder has words for values that JSON does not have."""
    try:
        found = _encode(given)
        values = [v for k, v in given.items() if k not in of_bytes] if of_bytes else given.values()
        _refuse_unlike(values, _NUMBERS if b"null" not in found else _PLAIN)
    except _UNTOLD as exc:
        raise _invalid(f"{name}: {exc}") from None
    return found


def _refuse_unlike(level: Collection[Any], plain: frozenset[type]) -> None:
    """Raise for bytes, and for floats that are no numbers; what is plain is neither.

    Level by level: the last one, which has most of the values, is seen without a loop.
    """
    while not plain.issuperset(map(type, level)):
        deeper: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is dict:
                deeper += value.values()
                if not _PLAIN.issuperset(map(type, value)):
                    _refuse_unlike([*value], _PLAIN)  # a float would become a text
            elif kind is list:
                deeper += value
            elif kind not in plain:
                deeper += _opened(value)
        level = deeper


def _opened(value: Any) -> Iterable[Any]:
    """What is in a value that is neither plain nor a list nor a dict, such as a struct."""
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"JSON has no number {value}")
        return ()
    if isinstance(value, _BYTES):
        raise TypeError("JSON has no bytes: decode them, or pass a msgspec.Raw")
    if isinstance(value, list | tuple | set | frozenset):
        return value
    # It was encoded, so the only strangers in it are instances of Raw.
    simple = msgspec.to_builtins(value, builtin_types=_BYTES, enc_hook=lambda _raw: None)
    return () if type(simple) is type(value) else (simple,)


# --- spans ----------------------------------------------------------------------------------------


def ms(span: Duration | None) -> int | None:
    """Milliseconds, rounded up; a text means what it means to `icctl`."""
    if isinstance(span, str):
        found = duration_ms(span)
    elif isinstance(span, timedelta):
        return -(-span // timedelta(milliseconds=1))
    elif span is None:
        return None
    else:
        try:
            return -int(-span * 1000 // 1)
        except _UNTOLD:  # infinite, or something else
            found = None
    if found is None:
        raise _invalid(f"invalid duration {span!r}", "write 500ms, 5m, 24h or a number")
    return found


def whole_seconds(span: Duration) -> int:
    """Seconds, rounded up: no interval is shorter than asked."""
    found = ms(span)
    assert found is not None
    return -(-found // 1000)


# --- who asks, and about what ---------------------------------------------------------------------


class Target:
    """The project that is meant, and the session that is recorded with writes."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None,
        db: str | os.PathLike[str] | None,
        session: str | None,
    ) -> None:
        self.cwd = os.path.abspath(os.getcwd() if project is None else os.fspath(project))
        chosen = os.environ.get("INTERCORE_DB") if project is None and db is None else db
        self.db = os.fspath(chosen) if chosen else None
        self.session = session or session_of(os.environ)[:WORD_CHARACTERS] or None
        named = {"cwd": self.cwd, "db": self.db, "session": self.session}
        try:
            told = _encode({name: value for name, value in named.items() if value is not None})
        except UnicodeEncodeError:
            what = "the path of the project is not valid UTF-8"
            raise from_error(BadPath(what, hint="rename it, or use icctl")) from None
        self.envelope = told[1:-1]


# --- calls ----------------------------------------------------------------------------------------


class Reply(Generic[T]):
    """A call, and what came of it: `result()` returns that or raises; `error` is None if it worked.

    Of a pipeline, there is nothing to be had until the block has ended.
    """

    __slots__ = (
        "_result",
        "body",
        "error",
        "id",
        "is_done",
        "is_doubtful",
        "is_unknown",
        "request_id",
        "spec",
    )

    def __init__(
        self, known: Spec, params: Mapping[str, Any], target: Target, request_id: str | None
    ) -> None:
        self.spec = known
        self.id = 0  # on the connection that it was sent on
        self.request_id = request_id
        self.error: Error | None = None
        self.is_done = False
        self.is_unknown = False  # an attempt may have been executed
        self.is_doubtful = False  # one before the last may have been
        self._result: Any = None
        own = _encode_all(known.name, known.given(params), known.of_bytes)[:-1]
        body = own + b"," + target.envelope if len(own) > 1 else own + target.envelope
        if known.keeps_ids:
            self.request_id = request_id or os.urandom(12).hex()
            body += b',"request_id":' + _encode_all(known.name, {"": self.request_id})[4:-1]
        # Outside strings a line break is mere white space, and a request is one line.
        self.body = body.replace(b"\n", b" ") if b"\n" in body else body

    @property
    def runs_here(self) -> bool:
        """It touches files of this process's choice, or is more than a daemon reads.

        Of the latter hardly one is carried out: a limit of its own refuses it first.
        """
        return self.spec.is_local or len(self.body) > MESSAGE_BYTES - ENVELOPE_BYTES

    def params(self, remaining: float) -> bytes:
        told = remaining - min(MARGIN_SECONDS, remaining / 10)
        return b'%b,"deadline_ms":%d}' % (self.body, max(told * 1000, 1))

    def line(self, tag: bytes, remaining: float) -> bytes:
        """The request, as the daemon reads it; `tag` is its id, as JSON."""
        return b'{"jsonrpc":"2.0","id":%b%b%b}\n' % (tag, self.spec.head, self.params(remaining))

    def result(self) -> T:
        if not self.is_done:
            raise RuntimeError(f"{self.spec.name} has not been sent yet: end the block first")
        if self.error is not None:
            raise self.error
        found: T = self._result
        return found

    # --- for those who carry it out ---

    def settle(self, result: Any) -> None:
        self._result, self.is_done = result, True

    def fail(self, error: Error | IcError) -> None:
        """ "Retryable" would be said of the last attempt only, and invite to a second effect."""
        found = error if isinstance(error, Error) else from_error(error)
        if found.is_retryable and self.is_doubtful and self.spec.changes:
            told = f"a reply to {self.spec.name} was lost, and then: {found.message}"
            found = from_error(UnknownOutcome(told))
        self.error, self.is_done = found, True

    def take(self, response: Response) -> None:
        """What the daemon says."""
        if isinstance(response.error, _Failure):
            said = response.error
            self.fail(from_wire(said.message, said.code, said.data))
        else:
            if not isinstance(response.result, Raw):
                raise msgspec.DecodeError("neither a result nor an error")
            self.settle(self.spec.read_result(response.result))

    def expire(self, limit: float) -> None:
        """The time is up: say what can be told about the outcome."""
        told = f"{self.spec.name} was not answered within {limit:g} s"
        if not self.is_unknown:
            hint = "nothing was done; retry, or raise the timeout"
            self.fail(DeadlineExceeded(told, hint=hint))
        elif self.spec.changes:
            self.fail(UnknownOutcome(told))
        else:
            self.fail(DeadlineExceeded(told, hint="nothing was changed; retry"))

    def misread(self) -> None:
        told = f"what answers {self.spec.name} speaks another protocol than this client"
        hint = "upgrade the older of the two, and read the state before you repeat a write"
        self.fail(UnknownOutcome(told, hint=hint))


def undone(calls: list[Reply[Any]]) -> list[Reply[Any]]:
    """Those that are to be sent again."""
    found = [call for call in calls if not call.is_done]
    for call in found:
        call.is_doubtful |= call.is_unknown
    return found


def limit_of(calls: list[Reply[Any]], timeout: Duration | None) -> float:
    """How long the calls may take together, in seconds."""
    if timeout is None:
        return max(call.spec.seconds for call in calls)
    return min(max((ms(timeout) or 0) / 1000, 0.001), MAX_SECONDS)
