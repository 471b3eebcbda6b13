"""JSON-RPC 2.0, one object or array per line."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from icd.app import registry
from icd.app.call import Params
from icd.app.invocation import Output
from icd.app.verb import Method
from icd.errors import IcError, InvalidParams, InvalidRequest, MethodNotFound, ParseError
from icd.server import limits

Id = int | str | float | None


class Request(Struct):
    jsonrpc: Literal["2.0"]
    method: str
    params: Raw = Raw(b"{}")
    id: Id | UnsetType = UNSET


class _Success(Struct):
    id: Id
    result: Any
    jsonrpc: str = "2.0"


class _Failure(Struct):
    id: Id
    error: dict[str, Any]
    jsonrpc: str = "2.0"


class _Chunk(Struct, omit_defaults=True):
    id: Id
    stdout: str = ""
    stderr: str = ""


class _Notification(Struct):
    method: str
    params: _Chunk
    jsonrpc: str = "2.0"


class _News(Struct):
    method: str
    params: Raw
    jsonrpc: str = "2.0"


_request = msgspec.json.Decoder(Request)
_items = msgspec.json.Decoder(list[Raw])
_encoder = msgspec.json.Encoder()
_methods: dict[str, tuple[Method[Any, Any], msgspec.json.Decoder[Params]]] = {}


def decode_line(line: bytes) -> Request | IcError | list[Request | IcError]:
    """A line is one request, or a batch of them."""
    if not (line.isascii() or _is_utf8(line)):  # what is kept raw is not looked at by the decoder
        return ParseError("not JSON: it is not valid UTF-8")
    if line[:1] == b"{" or line.lstrip()[:1] != b"[":
        return decode(line)
    try:
        items = _items.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        return ParseError(f"not JSON: {exc}")
    if not items:
        return InvalidRequest("an empty batch")
    if len(items) > limits.REQUESTS:
        return InvalidRequest(f"a batch has at most {limits.REQUESTS} requests")
    return [decode(item) for item in items]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode(line: bytes | Raw) -> Request | IcError:
    """One request, or the error that the specification wants for it."""
    try:
        return _request.decode(line)
    except msgspec.ValidationError as exc:
        return InvalidRequest(f"not a JSON-RPC 2.0 request: {exc}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        return ParseError(f"not JSON: {exc}")


def parameters(request: Request) -> tuple[Method[Any, Any], Params]:
    """The method and its checked parameters, given by name or by position."""
    known = _methods.get(request.method)
    if known is None:
        method = registry.find(request.method)
        if method is None:
            raise MethodNotFound(f"there is no method {request.method}")
        if method.runs.local:
            raise MethodNotFound(
                f"{method.name} works on the caller's files",
                hint="use icctl, which runs it in its own process",
            )
        known = _methods[method.name] = (method, msgspec.json.Decoder(method.params))
    method, decoder = known
    try:
        return method, decoder.decode(request.params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raw = bytes(request.params)
        if raw[:1] != b"[":
            raise InvalidParams(f"{method.name}: {exc}") from exc
    try:
        return method, decoder.decode(_by_name(method, raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidParams(f"{method.name}: {exc}") from exc


def _by_name(method: Method[Any, Any], raw: bytes) -> bytes:
    names = method.params.__struct_fields__
    values = _items.decode(raw)
    if len(values) > len(names):
        raise InvalidParams(f"{method.name} takes at most {len(names)} positional parameters")
    pairs = (b'"%b":%b' % (n.encode(), bytes(v)) for n, v in zip(names, values, strict=False))
    return b"{" + b",".join(pairs) + b"}"


def success(id_: Id, result: object) -> bytes:
    try:
        data = _encoder.encode(_Success(id_, result))
        return data.replace(b"\n", b" ") if b"\n" in data else data  # as `_line`, once per call
    except UnicodeEncodeError:
        return failure(id_, InvalidRequest("the result contains a path that is not valid UTF-8"))


def failure(id_: Id, error: IcError) -> bytes:
    message = error.message.encode("utf-8", "backslashreplace").decode()
    return _line(_Failure(id_, {"code": error.code, "message": message, "data": error.data}))


def output(id_: Id, printed: Output) -> bytes:
    """A part of what the command of `cli.run` prints, while it goes on."""
    stdout, stderr = (text.decode("utf-8", "replace") for text in (printed.stdout, printed.stderr))
    return _line(_Notification("cli.output", _Chunk(id_, stdout, stderr))) + b"\n"


def notification(method: str, id_: Id, news: Struct) -> bytes:
    """A part of a typed stream: the fields of `news`, beside the id of the request."""
    params = Raw(b'{"id":' + _encoder.encode(id_) + b"," + _encoder.encode(news)[1:])
    return _line(_News(method, params)) + b"\n"


def _line(response: Struct) -> bytes:
    data = _encoder.encode(response)
    # A stored payload is embedded as written; outside strings a line break is mere white space.
    return data.replace(b"\n", b" ") if b"\n" in data else data
