"""Manual pages, made from the commands: icctl(1) and icd(8), in the macros of man(7).

A page says what `--help` says, all of it in one place.  It carries no date, so that the same
program always makes the same page.
"""

from collections.abc import Iterator
from inspect import cleandoc

import click

from icd import __version__, config
from icd.app import registry
from icd.app.reference import help as texts

Entries = list[tuple[str, str]]

_EXITS: Entries = [
    ("0", "Success."),
    ("1", "Negative result: throttled, not found, at another version, no daemon."),
    ("2", "Error."),
    ("3", "Usage error."),
    ("69", "There is no database, and --if-database was given."),
]
_EXITS_OF_ICD: Entries = [
    ("0", "It was stopped, or a daemon is already running; the pages are written."),
    ("2", "It cannot start; a page cannot be written; usage error."),
]
_VARIABLES: Entries = [
    ("INTERCORE_DB", "Database file, unless --db is given."),
    ("INTERCORE_MODE", "auto (default), daemon or direct: which process runs the command."),
    ("INTERCORE_SOCKET", "Path of the daemon's socket."),
    *((variable, f"The setting {name}.") for name, variable in config.VARIABLES.items()),
]
_FILES: Entries = [
    (".clavain/intercore.db", "Database of a project."),
    (f".clavain/{config.PROJECT_FILE}", "Settings of a project."),
    (f"~/{config.USER_FILE}", "Settings of the user."),
]
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


def pages(icd: click.Group) -> dict[str, str]:
    """The pages by their paths below a directory of manual pages."""
    return {
        "man1/icctl.1": _page(_icctl()),
        "man1/ic.1": ".so man1/icctl.1\n",
        "man8/icd.8": _page(_icd(icd)),
    }


def _icctl() -> Iterator[str]:
    yield _title("ICCTL", 1)
    yield heading("NAME")
    yield escaped(f"icctl, ic - {texts.ABOUT.rstrip('.')}")
    yield heading("SYNOPSIS")
    yield f"{bold('icctl')} COMMAND [ARGUMENT]..."
    yield heading("DESCRIPTION")
    yield escaped(
        "Hooks and scripts share state, rate limits, locks and events, in a database per project. "
        "icctl calls the daemon icd, or opens the database itself if no daemon is running."
    )
    yield heading("COMMANDS")
    for name, leaf in registry.commands().items():
        yield from _command(f"icctl {name}", leaf.click)
    yield heading("OPTIONS")
    yield escaped("Every command accepts these options, before or after its own arguments.")
    yield from (definition(form, about) for form, about in texts.GLOBALS)
    yield from _lists(_EXITS)
    yield heading("SEE ALSO")
    yield f"{bold('icd')}(8)"


def _icd(group: click.Group) -> Iterator[str]:
    yield _title("ICD", 8)
    yield heading("NAME")
    yield escaped("icd - the daemon of intercore")
    yield heading("SYNOPSIS")
    yield f"{bold('icd')} COMMAND [ARGUMENT]..."
    yield heading("DESCRIPTION")
    yield from blocks(group.help or "")
    yield heading("COMMANDS")
    for name, command in group.commands.items():
        yield from _command(f"icd {name}", command)
    yield from _lists(_EXITS_OF_ICD)
    yield heading("SEE ALSO")
    yield f"{bold('icctl')}(1)"


def _command(name: str, command: click.Command) -> Iterator[str]:
    ctx = click.Context(command, info_name=name, terminal_width=texts.WIDTH, color=False)
    yield heading(" ".join([name, *command.collect_usage_pieces(ctx)]), level=2)
    yield from blocks(command.help or "")
    for param in command.params:
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            yield definition(*record)


def _lists(exits: Entries) -> Iterator[str]:
    lists = {"EXIT STATUS": exits, "ENVIRONMENT": _VARIABLES, "FILES": _FILES}
    for title, entries in lists.items():
        yield heading(title)
        yield from (definition(name, about) for name, about in entries)


def _title(name: str, section: int) -> str:
    return f'.TH {name} {section} "" "intercore {__version__}"'


def _page(parts: Iterator[str]) -> str:
    return "\n".join(parts) + "\n"


# --- text as roff: what would be an instruction to it is escaped ----------------------------------


def escaped(text: str) -> str:
    """The text with no line that begins with a control character."""
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
