"""Typical mistakes and what they print: tests/data/mistakes.txt, shown in docs/mistakes.md.

A title, then command lines with their exit status and what is on stderr; stdout stays empty.

    python -m tests.support.mistakes     writes the page

`cd elsewhere` stands for a directory that belongs to no project.
"""

import shlex
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "mistakes.txt"
PAGE = ROOT / "docs" / "mistakes.md"
ELSEWHERE = "cd elsewhere && "
HEAD = """\
# Mistakes

What `icctl` prints when a command line is wrong: one line on stderr, with what was probably meant, and nothing on stdout.
The number in front is the exit status: 3 if the line cannot be understood, 2 if it was refused, 1 if what it names is not there.
`--json-errors` prints the same as one line of JSON, for programs.

What other tools call a thing is suggested, and never understood: each thing keeps one name, which scripts can rely on.
Durations are `500ms`, `5m`, `1h30m` or `7d`; where nothing is deleted, a number of seconds will do as well.
An option takes its value as `--ttl=5m` or `--ttl 5m`.

<!-- Made from tests/data/mistakes.txt by make docs. -->
"""


class Mistake(msgspec.Struct):
    line: str
    exit: int
    told: str

    @property
    def argv(self) -> list[str]:
        return shlex.split(self.line.removeprefix(ELSEWHERE))[1:]

    @property
    def is_elsewhere(self) -> bool:
        return self.line.startswith(ELSEWHERE)


def mistakes() -> list[Mistake]:
    lines = [text for text in DATA.read_text("utf-8").splitlines() if text[:1] not in ("", "#")]
    return [_mistake(*pair) for pair in zip(lines[::2], lines[1::2], strict=True)]


def _mistake(typed: str, told: str) -> Mistake:
    status, _, message = told.partition(" ")
    return Mistake(typed.removeprefix("$ "), int(status), message)


def page() -> str:
    titles = DATA.read_text("utf-8").split("# ")[1:]
    parts = (title.partition("\n") for title in titles)
    return HEAD + "".join(f"\n## {name}\n\n```\n{body.strip()}\n```\n" for name, _, body in parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
