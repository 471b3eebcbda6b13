"""Help texts, 80 columns wide whatever terminal the daemon was started in."""

from collections.abc import Mapping

import click

from icd.app import registry

WIDTH = 80

ABOUT = "Fast shared state, throttles, locks and events for AI coding agents' hooks."

GLOBALS = [
    ("--db PATH", "Database file (default $INTERCORE_DB, or the nearest .clavain/intercore.db)."),
    ("--timeout D", "Deadline of the call, such as 500ms or 10s (default 5s)."),
    ("--json", "Print the result as JSON."),
    ("--verbose", "Show SQL statements, timings and lock waits on stderr."),
    ("--no-daemon", "Open the database directly, even if the daemon is running."),
    ("--if-database", "Exit 69, silently, if there is no database; for scripts."),
    ("--help", "Show help for the program or a command."),
]
_EXITS = "Exit codes: 0 success, 1 negative result (throttled, not found), 2 error, 3 usage error."


def usage(program: str) -> bytes:
    formatter = _formatter()
    formatter.write_usage(program, "COMMAND [ARGUMENT]...")
    formatter.write_paragraph()
    formatter.write_text(ABOUT)
    for noun, (_, about) in registry.GROUPS.items():
        with formatter.section(f"{noun} ({about})"):
            formatter.write_dl(_summaries(noun, registry.verbs(noun)))
    with formatter.section("Other commands"):
        singles = {name: registry.single(name) for name in registry.SINGLES}
        formatter.write_dl(_summaries("", singles))
    _write_globals(formatter)
    formatter.write_paragraph()
    formatter.write_text(f"Run '{program} COMMAND --help' for examples.")
    return formatter.getvalue().encode()


def noun(program: str, name: str) -> bytes:
    formatter = _formatter()
    formatter.write_usage(f"{program} {name}", "VERB [ARGUMENT]...")
    with formatter.section(registry.GROUPS[name][1].capitalize()):
        formatter.write_dl([*_summaries(name, registry.verbs(name)), *_nouns_below(name)])
    _write_globals(formatter)
    return formatter.getvalue().encode()


def command(program: str, context: str, leaf: click.Command) -> bytes:
    formatter = _formatter()
    ctx = click.Context(leaf, info_name=f"{program} {context}", terminal_width=WIDTH, color=False)
    leaf.format_help(ctx, formatter)
    _write_globals(formatter)
    return formatter.getvalue().encode()


def _summaries(noun: str, leaves: Mapping[str, click.Command]) -> list[tuple[str, str]]:
    return [
        (f"{noun} {name}".strip(), leaf.get_short_help_str(60)) for name, leaf in leaves.items()
    ]


def _nouns_below(noun: str) -> list[tuple[str, str]]:
    names = [f"{noun} {word}" for word in registry.below(noun)]
    return [(f"{name} VERB", f"{registry.GROUPS[name][1].capitalize()}.") for name in names]


def _write_globals(formatter: click.HelpFormatter) -> None:
    with formatter.section("Everywhere"):
        formatter.write_dl(GLOBALS)
    formatter.write_paragraph()
    formatter.write_text(_EXITS)


def _formatter() -> click.HelpFormatter:
    return click.HelpFormatter(width=WIDTH - 2)
