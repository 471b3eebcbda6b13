"""Settings that a clone brings: they are about its own traces at most, and read in no time."""

from collections.abc import Callable

from tests.torture.repositories.clone import Clone, Primitive
from tests.torture.repositories.journals import place

LIMIT = 65_536
# What is mirrored: rows of keys that channels carry, in a database that is sound otherwise.
ROWS = """INSERT OR REPLACE INTO state
    SELECT k.value, 'others', '{"planted":true}', 7, 1900000000, NULL, NULL, NULL, 's'
    FROM json_each('["dispatch","bead","lane","coordination","pressure","budget","planted"]') AS k"""
RETIRES = '[mirror.channels.dispatch]\nretention_seconds = 1\npath = "{path}"\n'


def saying(write: Callable[[Clone], str | bytes], *, rows: bool = True) -> Primitive:
    def make(clone: Clone) -> None:
        if rows:
            with clone.sql() as conn:
                conn.execute(ROWS)
        content = write(clone)
        data = content if isinstance(content, bytes) else content.encode()
        (clone.root / "intercore.toml").write_bytes(data)
        (clone.clavain / "intercore.toml").write_bytes(data)

    return make


def text(content: str | bytes) -> Primitive:
    return saying(lambda _: content)


def retiring(path: str) -> Primitive:
    return text(RETIRES.format(path=path))


def irregular(kind: str) -> Primitive:
    def make(clone: Clone) -> None:
        place(kind, clone, clone.root / "intercore.toml")
        place(kind, clone, clone.clavain / "intercore.toml")

    return make


def _dotted(separator: str = ".") -> bytes:
    """One key of as many parts as fit: quadratic in tomllib."""
    return (separator.join(["a"] * (LIMIT // 2 - 3)) + "=1").encode()[:LIMIT]


def _many_dotted() -> str:
    """Many keys below the same long one, each of which is walked along again."""
    lines, size, number = [], 0, 0
    while size < LIMIT - 2100:
        line = ".".join(["a"] * 1000) + f".b{number} = 1"
        lines.append(line)
        size, number = size + len(line) + 1, number + 1
    return "\n".join(lines)


PRIMITIVES: dict[str, Primitive] = {
    "settings that mirror into the home": saying(lambda c: f'[mirror]\nroot = "{c.home}"\n'),
    "settings that mirror into the other project": saying(
        lambda c: f'[mirror]\nroot = "{c.other.parent}"\n'
    ),
    "settings that mirror to the root": text('[mirror]\nroot = "/"\n'),
    "settings that mirror through a link": saying(lambda c: f'[mirror]\nroot = "{_link(c)}"\n'),
    "settings that retire others' files": retiring("clavain/dispatch"),
    "settings that retire another channel's files": retiring("interphase/bead"),
    "settings that retire every channel's files": text(
        "".join(
            f"[mirror.channels.{key}]\nretention_seconds = 1\n"
            for key in ("dispatch", "bead", "lane", "coordination", "pressure", "budget")
        )
    ),
    "settings that mirror all that others read": text(
        '[mirror.channels.planted]\npath = "interphase/bead"\nretention_seconds = 1\n'
    ),
    "settings of dotted keys": saying(lambda _: _dotted()),
    "settings of dotted keys with spaces": saying(lambda _: _dotted(" . ")),
    "settings of a dotted table": text(b"[" + _dotted()[:-2][: LIMIT - 10] + b"]"),
    "settings of many dotted keys": saying(lambda _: _many_dotted()),
    "settings of many tables": text(
        "\n".join(f"[a{number}.b.c.d.e]\nx=1" for number in range(3200))[:LIMIT]
    ),
    "settings of deep arrays": text("a = " + "[" * 30_000 + "]" * 30_000),
    "settings of deep tables": text("a = " + "{b=" * 15_000 + "1" + "}" * 15_000),
    "settings of a long number": text("slow_ms = " + "9" * 60_000),
    "settings of a long string": text('durability = "' + "x" * 65_000 + '"'),
    "settings of escapes": text('durability = "\\u001b[31mred\\u009b\\u202e"\n'),
    "settings of escapes in names": text('"\\u001b[31m\\u202e" = 1\n'),
    "settings that are huge": saying(lambda _: b"# " + b"x" * 20_000_000),
    "settings that are binary": saying(lambda c: c.rng.randbytes(3000)),
    "settings with NUL": text(b'durability = "nor\0mal"\n'),
    "settings not in UTF-8": text(b'durability = "\xff\xfe"\n'),
    "settings of the daemon": text("auto_spawn = true\nhook_seconds = 300\nslow_ms = 1\n"),
    "settings that prune": text("events_keep_days = 1\nevents_keep_count = 1\nidle_seconds = 0.05\n"),
    "settings that never rest": text("idle_seconds = 0.05\nclose_idle_seconds = 0.05\n"),
    "settings of unknown words": text("[hooks]\ntrusted = true\n[trust]\nall = true\n"),
    "settings that trust themselves": text('trusted = true\nauto_spawn = "yes"\n'),
    **{
        f"settings are a {kind}": irregular(kind)
        for kind in ("link", "dangling link", "link to a device", "pipe", "directory", "socket")
    },
}  # fmt: skip


def _link(clone: Clone) -> str:
    (clone.root / "band").symlink_to(clone.home)
    return str(clone.root / "band")
