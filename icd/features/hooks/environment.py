"""What a hook finds in its environment: a person's shell, and the event; nothing of the host.

What a daemon was started with is its own: sockets and watchdogs of a service manager, what one
daemon leaves to the next, tokens of whoever started it.  So names are taken from a list.
"""

from collections.abc import Mapping

from icd.features.hooks.store import Delivery

PASSED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"}
    # How the hook's own calls find the daemon that their caller would find.
    | {"INTERCORE_SOCKET", "INTERCORE_MODE"}
)
# A fact is a name or an identifier; what is longer is in the JSON, in full.
FACT_CHARACTERS = 1000

HOOK = "INTERCORE_HOOK"  # also tells a direct call that a hook makes that it is in one


def environment(
    own: Mapping[str, str], *, project: str, database: str, delivery: Delivery
) -> dict[str, str]:
    passed = {name: value for name, value in own.items() if _is_passed_on(name)}
    facts = {
        HOOK: delivery.hook,
        "INTERCORE_PROJECT": project,
        "INTERCORE_DB": database,
        "INTERCORE_EVENT_SEQ": str(delivery.seq),
        "INTERCORE_EVENT_SOURCE": _fact(delivery.source),
        "INTERCORE_EVENT_TYPE": _fact(delivery.type),
        "INTERCORE_EVENT_RUN": _fact(delivery.run_id),
    }
    if delivery.redelivery:
        facts["INTERCORE_REDELIVERY"] = "1"
    return passed | facts


def _is_passed_on(name: str) -> bool:
    return name in PASSED_ON or name.startswith("LC_")


def _fact(text: str) -> str:
    """An environment holds no NUL."""
    return text[:FACT_CHARACTERS].replace("\0", "")
