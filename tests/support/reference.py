"""`docs/cli.md`, `docs/protocol.md` and the table of `docs/mcp.md`, made from the rows.

`make docs` writes the pages; `tests/test_docs.py` fails when a page differs from what is made
here.  What a row cannot say stands in the templates in `docs/reference`, and on the topic pages.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from icd import errors
from icd.mcp import offer, tools
from icd.server import limits
from tests.support import reference_commands, reference_methods
from tests.support.markdown import anchor, cell

DOCS = Path(__file__).parents[2] / "docs"
TEMPLATES = DOCS / "reference"

MCP = DOCS / "mcp.md"
# What stands between these lines of a page is made here, the rest is written by hand.
BEGIN = "<!-- made by `make docs` from the rows of the methods: do not edit -->"
END = "<!-- end -->"

Parts = dict[str, Callable[[], Iterator[str]]]


def pages() -> dict[Path, str]:
    """Each generated page, with the text that it is to have."""
    cli: Parts = {
        "contents": reference_commands.contents,
        "flags": reference_commands.flags,
        "commands": reference_commands.commands,
        "daemon": reference_commands.daemon,
    }
    protocol: Parts = {
        "index": reference_methods.index,
        "common": reference_methods.common,
        "methods": reference_methods.methods,
        "errors": error_rows,
        "limits": limit_rows,
    }
    return {
        MCP: _within(MCP.read_text(encoding="utf-8"), _text(tool_rows())),
        DOCS / "cli.md": _page("cli.md.in", "the rows of the commands", cli),
        DOCS / "protocol.md": _page("protocol.md.in", "the rows of the methods", protocol),
    }


def _page(template: str, source: str, parts: Parts) -> str:
    """The template with a generated part in the place of each line `{{name}}`."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    made = f"<!-- made by `make docs` from {source} and docs/reference/{template}: do not edit -->"
    names = re.findall(r"^\{\{(\w+)\}\}$", text, re.MULTILINE)
    assert sorted(names) == sorted(parts), f"{template} has the parts {names}"
    for name in names:
        text = text.replace(f"{{{{{name}}}}}\n", _text(parts[name]()))
    return f"{made}\n\n{text}"


def _within(page: str, made: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n{END}{rest.partition(END)[2]}"


def _text(lines: Iterator[str]) -> str:
    """Lines as a text in which no two blank lines follow each other."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n"


# --- tables of the program ------------------------------------------------------------------


def error_rows() -> Iterator[str]:
    said = _comments(Path(errors.__file__))
    names = {kind: name for name, kind in vars(errors).items() if isinstance(kind, type)}
    yield "| Code | Name | Exit | Retryable | Meaning | What to do |"
    yield "|---|---|---|---|---|---|"
    for kind in errors.TABLE:
        retryable = "yes" if kind.retryable else "no"
        meaning = said[names[kind]].rstrip(".")
        cells = (kind.code, f"`{kind.name}`", kind.exit, retryable, meaning, kind.hint)
        yield f"| {' | '.join(cell(str(text)) for text in cells)} |"


def tool_rows() -> Iterator[str]:
    yield from ("| Tool | What it does | By default | Hints |", "|---|---|---|---|")
    for row in offer.candidates():
        tool = tools.describe(row)
        hints = {"reads": tool.reads, "destructive": tool.destroys}
        hints["idempotent"] = tool.idempotent and not tool.reads
        told = ", ".join(name for name, holds in hints.items() if holds)
        link = f"[`{tool.name}`](protocol.md#{anchor(row.name)})"
        default = "yes" if offer.is_default(row) else f"`--allow={row.name}`"
        cells = (link, tool.description.splitlines()[0], default, told)
        yield f"| {' | '.join(map(cell, cells))} |"


def limit_rows() -> Iterator[str]:
    yield from ("| Limit | Value | Meaning |", "|---|---|---|")
    for name, said in _comments(Path(limits.__file__), shared=True).items():
        value = getattr(limits, name)
        shown = int(value) if value == int(value) else value
        yield f"| `{name}` | {shown} | {cell(said)} |"


def _comments(source: Path, *, shared: bool = False) -> dict[str, str]:
    """What the comment above each name says; `shared`: also for the names that follow it."""
    found: dict[str, str] = {}
    comment: list[str] = []
    open_ = False
    for line in source.read_text(encoding="utf-8").splitlines():
        if re.match(r"# (?!---|fmt:)", line):
            comment = [*comment, line[2:]] if open_ else [line[2:]]
            open_ = True
            continue
        name = re.match(r"(\w+) = ", line)
        if name:
            found[name[1]] = " ".join(comment)
        open_ = False
        if not shared:
            comment = []
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
