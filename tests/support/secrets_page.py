"""The table of `docs/secrets.md`, made from the formats that are refused.

`make docs` writes it; `tests/test_docs.py` fails when the page says something else.
"""

from pathlib import Path

from icd.values.secrets import FORMATS, Format

PAGE = Path(__file__).parents[2] / "docs" / "secrets.md"
BEGIN = "<!-- made by `make docs` from icd/values/secrets.py: do not edit -->"
END = "<!-- end -->"


def table() -> str:
    rows = ["| Kind | Begins with | Then | Whose |", "|---|---|---|---|", *map(_row, FORMATS)]
    return "\n".join(rows)


def page(text: str) -> str:
    """The page with today's table in it."""
    before, rest = text.split(BEGIN)
    _old, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def _row(row: Format) -> str:
    starts = ", ".join(f"`{start}`" for start in row.starts)
    case = " (in either case)" if row.any_case else ""
    body = row.body.replace("|", r"\|")
    return f"| {row.kind} | {starts}{case} | `{body}` | {row.source} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
