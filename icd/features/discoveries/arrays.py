"""numpy, for whoever compares vectors: loaded when first used, for it takes a tenth of a second.

A product uses one thread: the daemon's machine belongs to those who wait for hooks, and the
libraries below numpy take every processor unless they are told before they are loaded.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["load", "np"]

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    Doubles = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    Booleans = np.ndarray[tuple[int, ...], np.dtype[np.bool]]
    Places = np.ndarray[tuple[int, ...], np.dtype[np.intp]]
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            found = getattr(load(), name)
            setattr(self, name, found)
            return found

    np = _Numpy()


def load() -> Any:
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        return import_module("numpy")
    finally:
        for name, value in before.items():  # programs that we start have a mind of their own
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
