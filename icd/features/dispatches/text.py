"""How a dispatch is shown."""

import re

from icd.features.dispatches.store import Dispatch

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def lines(found: Dispatch, _p: object = None) -> list[str]:
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
    return [f"{label + ':':<9}{_one_line(value)}" for label, value in known]


def _one_line(value: object) -> str:
    """A path may hold a line break; it must not look like another field."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(value))


def _stats(found: Dispatch) -> str:
    if not (found.turns or found.commands or found.messages):
        return ""
    return f"{found.turns} turns, {found.commands} commands, {found.messages} messages"


def _tokens(found: Dispatch) -> str:
    if not (found.input_tokens or found.output_tokens or found.cache_hits):
        return ""
    cache = f" / {found.cache_hits} cache" if found.cache_hits is not None else ""
    return f"{found.input_tokens} in / {found.output_tokens} out{cache}"
