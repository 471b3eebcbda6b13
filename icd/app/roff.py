"""Text as roff: what would be an instruction to it is escaped, and a paragraph is a macro."""

from collections.abc import Iterator
from inspect import cleandoc

# Characters that roff would otherwise read as its own, or print as typographic ones.
_ESCAPES = {
    "\\": "\\e",
    "-": "\\-",
    "'": "\\(aq",
    "`": "\\(ga",
    "^": "\\(ha",
    "~": "\\(ti",
    '"': "\\(dq",
}
_TABLE = str.maketrans(_ESCAPES)
# Click's own mark of a paragraph whose lines stay as they are.
_AS_IT_IS = "\b\n"


def escaped(text: str) -> str:
    """Lines that begin with no control character."""
    lines = (line.translate(_TABLE) for line in text.split("\n"))
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in lines)


def bold(text: str) -> str:
    return f"\\fB{escaped(text)}\\fR"


def heading(text: str, level: int = 1) -> str:
    return f'.{"SH" if level == 1 else "SS"} "{text.translate(_TABLE)}"'


def definition(term: str, text: str) -> str:
    return f".TP\n{bold(term)}\n{escaped(text)}"


def blocks(text: str) -> Iterator[str]:
    """The paragraphs of a help text."""
    for paragraph in cleandoc(text).split("\n\n"):
        if paragraph.startswith(_AS_IT_IS):
            yield f".PP\n.EX\n{escaped(paragraph.removeprefix(_AS_IT_IS))}\n.EE"
        else:
            yield f".PP\n{escaped(paragraph)}"
