"""Load the libraries of direct mode, and nothing that only they want: a hook pays for every import.

While typing and msgspec are loaded, these modules are not, or are cheaper:

- typing_extensions loads inspect, ast, dis and tokenize, for names that Python's own typing has;
- platform tells uuid which system this is;
- re is there for the types of its results, which typing names, and for msgspec's patterns;
- the parts of msgspec that describe types, and that read what is not JSON;
- datetime defines everything in Python, and then again in C; newer Pythons take C's at once.

What is asked for later is the real module.  The garbage collector would look again and again at
modules that are being made, and find nothing.
"""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import gc
import sys
from importlib import import_module
from os.path import isdir
from posix import uname
from types import ModuleType

TYPE_CHECKING = False  # `typing` is loaded below
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIBRARIES = ("msgspec", "click")  # click is loaded for help and mistakes only

gc.disable()  # until `collect_garbage`


def collect_garbage() -> None:
    """From now on; what is loaded stays, and is not looked at again."""
    gc.freeze()
    gc.enable()


def _are_found() -> bool:
    """Whether the libraries lie where this Python looks, which was started without `site`."""
    places = sys.path[::-1]  # ours is the last
    return all(any(isdir(f"{place}/{name}") for place in places) for name in LIBRARIES)


def _load() -> None:
    if "msgspec" in sys.modules:  # in the program of a user of icctl.api, whose typing is not ours
        return
    mine = {name: module for name, module in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(mine)  # type: ignore[arg-type]
    try:
        _load_msgspec()
    except (ImportError, AttributeError):  # another msgspec may want more: then it gets all
        for name in [n for n in sys.modules if n.partition(".")[0] == "msgspec"]:
            del sys.modules[name]
    finally:
        for name, module in mine.items():
            if name in sys.modules and sys.modules[name] is module:
                del sys.modules[name]


def _load_msgspec() -> None:
    import typing

    real = typing.ForwardRef
    setattr(typing, "ForwardRef", _Tried)  # noqa: B010
    try:
        import msgspec  # noqa: F401
    finally:
        setattr(typing, "ForwardRef", real)  # noqa: B010


class _Tried:
    """Stands for a forward reference that msgspec makes once, to see which arguments are known.

    A real one is compiled, and for that Python makes the hundred types of its syntax trees.
    """

    def __init__(self, *_args: object, **_named: object) -> None:
        pass


def _stand_ins() -> dict[str, ModuleType | None]:
    return {
        **_stand_in_for_re(),
        "typing_extensions": None,
        "platform": _stand_in("platform", system=lambda: uname().sysname),
        "textwrap": _stand_in("textwrap"),
        "msgspec.inspect": _stand_in("msgspec.inspect"),
        "msgspec._json_schema": _stand_in("msgspec._json_schema", "schema", "schema_components"),
        "msgspec.msgpack": _stand_in("msgspec.msgpack"),
        "msgspec.toml": _stand_in("msgspec.toml"),
        "msgspec.yaml": _stand_in("msgspec.yaml"),
    }


def _stand_in_for_re() -> dict[str, ModuleType | None]:
    try:
        made = _sre.compile("", 0, [1], 0, {}, (None,))  # succeed: only the types count
        known = {"Pattern": type(made), "Match": type(made.match(""))}
    except (AttributeError, RuntimeError, TypeError):  # a Python that compiles in another way
        return {}
    return {"re": _stand_in("re", "compile", **known)}


def _stand_in(name: str, *functions: str, **known: object) -> ModuleType:
    """A module that makes room for the real one when its functions are called, or when anything
    else than what is known is asked of it."""
    made = ModuleType(name)

    def ask(wanted: str) -> Any:
        if sys.modules.get(name) is made:
            del sys.modules[name]
        return getattr(import_module(name), wanted)

    def later(function: str) -> Callable[..., Any]:
        def call(*args: object, **named: object) -> Any:
            return ask(function)(*args, **named)

        return call

    made.__dict__.update(known, __getattr__=ask)
    made.__dict__.update({function: later(function) for function in functions})
    return made


if sys.flags.no_site and not _are_found():
    import site

    site.main()
if "datetime" not in sys.modules:
    sys.modules["datetime"] = import_module("_datetime")
_load()
