"""numpy, for whoever compares vectors: it costs a tenth of a second, so import this module late.

A product uses one thread: the daemon's machine belongs to those who wait for hooks, and the
libraries below numpy take every processor unless they are told before they are loaded.
"""

import os

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_before = {name: os.environ.get(name) for name in _THREADS}
os.environ.update(dict.fromkeys(_THREADS, "1"))
try:
    import numpy as np
finally:
    for _name, _value in _before.items():
        if _value is None:
            del os.environ[_name]  # programs that we start have their own mind
        else:
            os.environ[_name] = _value

__all__ = ["np"]
