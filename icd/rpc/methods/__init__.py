"""The table of all methods, one module a noun, loaded when the noun is first used."""

from importlib import import_module

from icd.rpc.method import Method

NOUNS = {
    "state": "state",
    "sentinel": "sentinels",
    "events": "events",
    "cursor": "cursors",
    "compat": "compat",
    "statusline": "statusline",
    "db": "database",
    "backup": "backups",
    "dump": "dumps",
    "hook": "hooks",
    "discovery": "discoveries",
    "icd": "daemon",
    "rpc": "daemon",
    "cli": "daemon",
}

_loaded: dict[str, dict[str, Method]] = {}


def find(name: str) -> Method | None:
    noun = name.partition(".")[0]
    return table(noun).get(name) if noun in NOUNS else None


def table(noun: str) -> dict[str, Method]:
    """The methods of a noun by name; two of the same name are refused when the module loads."""
    if noun not in _loaded:
        module = import_module(f"{__name__}.{NOUNS[noun]}")
        methods: list[Method] = [m for m in module.METHODS if m.name.startswith(f"{noun}.")]
        by_name = {method.name: method for method in methods}
        assert len(by_name) == len(methods), f"a method of {noun} is defined twice"
        _loaded[noun] = by_name
    return _loaded[noun]


def every() -> list[Method]:
    return [method for noun in NOUNS for method in table(noun).values()]
