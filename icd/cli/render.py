"""How results look: plain lines for scripts and people, or the original's JSON style."""

import msgspec

from icd.cli.invocation import Output


def text(*lines: str, exit_code: int = 0) -> Output:
    return Output(exit_code, "".join(f"{line}\n" for line in lines).encode())


def to_json(value: object, exit_code: int = 0) -> Output:
    """Compact, keys sorted, `<`, `>` and `&` escaped, one line."""
    data = msgspec.json.encode(value, order="sorted")
    # These three and line breaks stand only inside strings or between tokens of a stored payload.
    data = data.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    return Output(exit_code, data.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")
