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
from os.path import isdir
from posix import uname
from types import ModuleType

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
    mine = {name: module for name, module in _stand_ins().items() if name not in sys.modules}
    sys.modules.update(mine)  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401
    except (ImportError, AttributeError):  # another msgspec may want more: then it gets all
        for name in [n for n in sys.modules if n.partition(".")[0] == "msgspec"]:
            del sys.modules[name]
    finally:
        for name, module in mine.items():
            if name in sys.modules and sys.modules[name] is module:
                del sys.modules[name]


def _stand_ins() -> dict[str, ModuleType | None]:
    return {
        "typing_extensions": None,
        "platform": _stand_in("platform", system=lambda: uname().sysname),
        "textwrap": _stand_in("textwrap"),
    }


def _stand_in(name: str, **known: object) -> ModuleType:
    """A module that makes room for the real one when anything but what is known is asked of it."""
    made = ModuleType(name)

    def ask(wanted: str) -> object:
        if sys.modules.get(name) is made:
            del sys.modules[name]
        return getattr(import_module(name), wanted)

    made.__dict__.update(known, __getattr__=ask)
    return made


if sys.flags.no_site and not _are_found():
    import site

    site.main()
if "datetime" not in sys.modules:
    sys.modules["datetime"] = import_module("_datetime")
_load()
