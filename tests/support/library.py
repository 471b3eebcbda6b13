"""The end of lib-intercore.sh: the parts beside it as texts, for a copy that is alone.

bash reads a here-document several times faster than it parses the same lines.
"""

from pathlib import Path

from tests.support.bash import LIBRARY

PARTS = LIBRARY.with_suffix("")
MARK = "# --- the parts once more,"


def parts() -> list[Path]:
    return sorted(PARTS.glob("*.sh"))


def made(library: str) -> str:
    """The library with its end made anew."""
    core, mark, rest = library.partition(MARK)
    title = rest.partition("\n")[0]
    return f"{core}{mark}{title}\n" + "".join(_text(part) for part in parts())


def _text(part: Path) -> str:
    body = part.read_text(encoding="utf-8")
    assert "\nTEXT\n" not in body
    reader = f"\n_intercore_text_{part.stem}() {{\n    _intercore_parse <<'TEXT'\n"
    return f"{reader}{body}TEXT\n}}\n"


if __name__ == "__main__":
    LIBRARY.write_text(made(LIBRARY.read_text(encoding="utf-8")), encoding="utf-8")
