"""Whether the rows of a database may become files: the user wants that, and trusts the database.

Both lie outside the project, which may be a stranger's: a directory that the user named or made,
and a record in the home directory (see `icd.trust`).  Files are looked at, so it runs in a thread.
"""

import enum
import hashlib
import os
from contextlib import suppress

from msgspec import Struct

from icd import trust

# Where it is noted, by the digest of its path, that the user was told that it is not trusted.
TOLD = ".local/share/intercore/told"
UNTRUSTED = "not mirrored to files: this database is not trusted; to accept it, run 'icctl trust'"


class Refusal(enum.Enum):
    UNWANTED = "there is no directory for files"
    UNTRUSTED = "the database is not trusted"


class Permit(Struct, frozen=True):
    """`must_exist`: the root is the default one, so it is used only if it is there."""

    root: str
    must_exist: bool
    home: str | None
    path: str

    def refusal(self) -> Refusal | None:
        if self.must_exist and not os.path.isdir(self.root):
            return Refusal.UNWANTED
        return None if trust.allows(self.home, self.path) else Refusal.UNTRUSTED

    def was_told(self) -> bool:
        """Whether the user has heard, ever since, that the database is not trusted."""
        return self.home is None or os.path.lexists(self._mark(self.home))

    def note_told(self) -> None:
        """Where that cannot be noted, the next daemon tells it again."""
        if self.home is not None:
            mark = self._mark(self.home)
            with suppress(OSError):
                os.makedirs(os.path.dirname(mark), mode=0o700, exist_ok=True)
                os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _mark(self, home: str) -> str:
        return os.path.join(home, TOLD, hashlib.sha256(os.fsencode(self.path)).hexdigest())
