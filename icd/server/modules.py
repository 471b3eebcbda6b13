"""All the code of this program, loaded before the first call.

An upgrade replaces the files of an installation under the daemon that runs from them.  What it had
not loaded by then would be of the new version, amidst the old: so it loads everything at its start,
and stays whole until it is reloaded.
"""

import pkgutil
from importlib import import_module

import icd


def load_all() -> None:
    for module in pkgutil.walk_packages(icd.__path__, "icd."):
        if module.name != "icd.__main__":  # that is us
            import_module(module.name)
