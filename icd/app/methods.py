"""The table of all methods, one module a noun, loaded when the noun is first used."""

from importlib import import_module

from icd.app.method import Method

NOUNS = {
    "state": "state.methods",
    "sentinel": "sentinels.methods",
    "events": "events.methods",
    "cursor": "events.cursor_methods",
    "run": "runs.methods",
    "agent": "runs.agent_methods",
    "artifact": "runs.artifact_methods",
    "gate": "gates.methods",
    "compat": "compat.methods",
    "statusline": "statusline.methods",
    "db": "database.methods",
    "backup": "database.backup_methods",
    "dump": "database.dump_methods",
    "hook": "hooks.methods",
    "dispatch": "dispatches.methods",
    "lease": "leases.methods",
    "discovery": "discoveries.methods",
    "icd": "daemon.methods",
    "rpc": "daemon.methods",
    "cli": "daemon.methods",
}

_loaded: dict[str, dict[str, Method]] = {}


def find(name: str) -> Method | None:
    noun = name.partition(".")[0]
    return table(noun).get(name) if noun in NOUNS else None


def table(noun: str) -> dict[str, Method]:
    """The methods of a noun by name; two of the same name are refused when the module loads."""
    if noun not in _loaded:
        module = import_module(f"icd.features.{NOUNS[noun]}")
        methods: list[Method] = [m for m in module.METHODS if m.name.startswith(f"{noun}.")]
        by_name = {method.name: method for method in methods}
        assert len(by_name) == len(methods), f"a method of {noun} is defined twice"
        _loaded[noun] = by_name
    return _loaded[noun]


def every() -> list[Method]:
    return [method for noun in NOUNS for method in table(noun).values()]
