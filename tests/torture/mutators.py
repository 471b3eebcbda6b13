"""Inputs that nobody thought of, made from those that somebody did.

All by one source of chance, so that the same seed makes the same inputs.
"""

import random
import re
from collections.abc import Sequence

# Where programs stumble: lengths, signs, ends, quotes, encodings, and what a shell would run.
INTERESTING = [
    b"", b"\0", b"\n", b"\r\n", b"\t", b" ", b"\x7f", b"\xff", b"\xc0\x80", b"\xed\xa0\x80",
    b"\xef\xbb\xbf", "\u2028".encode(), "²".encode(), "٣".encode(), "ü".encode(), "😀".encode(),
    b"0", b"-1", b"-0", b"1e999", b"NaN", b"Infinity", b"null", b"true", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"9" * 20, b"9" * 400,
    b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b":", b",", b"=", b"--", b"-",
    b"--json", b"--help", b"--db=/", b"--timeout=0", b"@", b"@-", b"%s", b"$(id)", b"`id`", b"../",
    b"/dev/zero", b"x" * 300, b"[" * 200, b"ic1 ", b"ic2 1\0", b"[]", b"{}",
]  # fmt: skip
NUMBER = re.compile(rb"\d+")
LONGEST = 20_000


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    data = rng.choice(corpus)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        data = rng.choice(MUTATORS)(rng, data, corpus)[:LONGEST]
    return data


def _place(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randint(0, len(data))
    return start, min(len(data), start + rng.choice([0, 1, 1, 2, 4, 8, 64]))


def flip(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def replace(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    start, end = _place(rng, data)
    return data[:start] + rng.choice(INTERESTING) + data[end:]


def insert(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    start, _ = _place(rng, data)
    return data[:start] + rng.choice(INTERESTING) + data[start:]


def delete(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    start, end = _place(rng, data)
    return data[:start] + data[end:]


def double(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    start, end = _place(rng, data)
    return data[:end] + data[start:end] * rng.choice([1, 2, 100]) + data[end:]


def cut(rng: random.Random, data: bytes, _corpus: Sequence[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def splice(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = rng.choice(corpus)
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def renumber(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """Lengths and counts are where decoders believe what they are told."""
    found = list(NUMBER.finditer(data))
    if not found:
        return insert(rng, data, corpus)
    number = rng.choice(found)
    value = int(number[0][:18])
    other = rng.choice([value + 1, value - 1, value * 2, 0, -value, 2**31, 2**63, 10**15, 10**16])
    return data[: number.start()] + str(other).encode() + data[number.end() :]


MUTATORS = [flip, replace, replace, insert, insert, delete, double, cut, splice, renumber]

# --- where chance should leave the form as it is: else most inputs are refused at once ---

_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"(?!\s*:)|-?\d[\d.eE+-]*|\b(?:true|false|null)\b')
VALUES = [
    b"null", b"true", b"false", b"0", b"-1", b"1", b"1.5", b"0.1e-400", b"1e999", b"-0.0", b"9" * 400,
    b"9007199254740993", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809",
    b"253402300800", b'""', b'" "', b'"k"', b'"s"', b'"n"', b'"c"', b'"RUNID"', b'"/project"', b'"../x"',
    b'"\\u0000"', b'"\\ud800"', b'"a\\tb\\n"', b'"%s"', b'"%"', b'"*"', b'"' + b"x" * 5000 + b'"', b"[]",
    b"{}", b"[null]", b'["a","a"]', b'{"a":1}', b'{"":{}}', b"[" * 30 + b"]" * 30, b'"AACAfw=="',
]  # fmt: skip


def swap_value(rng: random.Random, data: bytes) -> bytes:
    """Another value in the place of one in JSON."""
    found = list(_VALUE.finditer(data))
    if not found:
        return data
    value = rng.choice(found)
    return data[: value.start()] + rng.choice(VALUES) + data[value.end() :]


def swap_word(rng: random.Random, data: bytes) -> bytes:
    """Another word, or value of an option, in a command line."""
    words = data.split(b"\0")
    at = rng.randrange(len(words))
    option, equals, _ = words[at].partition(b"=")
    other = rng.choice([*VALUES, *INTERESTING])
    words[at] = option + equals + other if equals else other
    return b"\0".join(words)
