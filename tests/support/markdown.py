"""Pieces of Markdown, for pages that are made and for tests that read pages."""

import re
from pathlib import Path

_BLOCKS = re.MULTILINE | re.DOTALL


def anchor(title: str) -> str:
    """Of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def titles(document: Path) -> list[str]:
    """The headings of a page, without what is code in it."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=_BLOCKS)
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")
