"""Have msgspec know how structs are made, before two threads want to know at once.

It finds out when a struct is first decoded, and keeps what it knows in the class from the moment
it begins: a second thread that decodes the same struct meanwhile finds half of it, and the process
dies.  Databases have threads of their own.  So the loop's thread lets msgspec look at every struct
of a module before a call can reach what the module defines.
"""

import sys
from contextlib import suppress
from threading import Lock
from types import ModuleType

import msgspec

_known: set[str] = set()
_looking = Lock()


def learn(*names: str) -> None:
    """Look at the structs of these modules, or of all of ours that are loaded."""
    loaded = sys.modules.copy()  # other threads load modules, too
    with _looking:
        for name in names or [name for name in loaded if name.startswith("icd.")]:
            module = loaded[name]
            # One that is being loaded by another thread is looked at later.
            if name not in _known and not getattr(module.__spec__, "_initializing", False):
                _known.add(name)
                _look_at(module)


def _look_at(module: ModuleType) -> None:
    for found in list(vars(module).values()):
        if isinstance(found, type) and issubclass(found, msgspec.Struct):
            with suppress(TypeError, NameError):  # it is never decoded: it holds functions
                msgspec.json.Decoder(found)
