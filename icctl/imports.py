"""Load the libraries of direct mode, and nothing that only they want: a hook pays for every import.

While msgspec is loaded, these modules are not, or are cheaper:

- typing_extensions loads inspect, ast, dis and tokenize, for names that Python's own typing has;
- platform tells uuid which system this is;
- textwrap serves the description of methods;
- datetime defines everything in Python, and then again in C; newer Pythons take C's at once.

What is asked for later is the real module.  The garbage collector would look again and again at
modules that are being made, and find nothing.
"""

import gc
import sys
from importlib import import_module
from posix import uname
from types import ModuleType

gc.disable()  # until `collect_garbage`


def _stand_in(name: str, **known: object) -> ModuleType:
    """A module that is loaded when anything but what is known is asked of it."""
    made = ModuleType(name)
    made.__dict__.update(known, __getattr__=lambda wanted: getattr(import_module(name), wanted))
    return made


def _stand_ins() -> dict[str, ModuleType | None]:
    return {
        "typing_extensions": None,
        "platform": _stand_in("platform", system=lambda: uname().sysname),
        "textwrap": _stand_in("textwrap"),
    }


def _load() -> None:
    mine = {name: module for name, module in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(mine)  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401
    finally:
        for name in mine:
            del sys.modules[name]


def collect_garbage() -> None:
    """From now on; what is loaded stays, and is not looked at again."""
    gc.freeze()
    gc.enable()


if "datetime" not in sys.modules:
    sys.modules["datetime"] = import_module("_datetime")
try:
    _load()
except ImportError:  # the libraries lie where only `site` looks
    import site

    site.main()
    _load()
