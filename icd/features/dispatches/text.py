"""How a dispatch is shown."""

import re
from collections.abc import Callable

from icd.app import render
from icd.app.invocation import Output, World
from icd.features.dispatches.methods import Document

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def show(world: World) -> Callable[[Document], Output]:
    return render.to_json if world.json else _text


def _text(found: Document) -> Output:
    """Labels, order and spacing are the original's."""
    fields = {
        "ID": found.id,
        "Status": found.status,
        "Type": found.agent_type,
        "Name": found.name,
        "PID": found.pid,
        "Project": found.project_dir,
        "Prompt": found.prompt_file,
        "Output": found.output_file,
        "Stats": _stats(found),
        "Tokens": _tokens(found),
        "Verdict": found.verdict_status,
        "Summary": found.verdict_summary,
        "Exit": found.exit_code,
        "Error": found.error_message,
    }
    known = ((label, value) for label, value in fields.items() if value not in (None, ""))
    return render.text(*(f"{label + ':':<9}{_one_line(value)}" for label, value in known))


def _one_line(value: object) -> str:
    """A path may hold a line break; it must not look like another field."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(value))


def _stats(found: Document) -> str:
    if not (found.turns or found.commands or found.messages):
        return ""
    return f"{found.turns} turns, {found.commands} commands, {found.messages} messages"


def _tokens(found: Document) -> str:
    if not (found.in_tokens or found.out_tokens or found.cache_hits):
        return ""
    cache = f" / {found.cache_hits} cache" if found.cache_hits is not None else ""
    return f"{found.in_tokens} in / {found.out_tokens} out{cache}"
