"""How large a test is: what `make check` can afford, and the full size of `make stress`."""

import os


def size(full: int, usual: int) -> int:
    return full if os.environ.get("INTERCORE_STRESS") else usual
