"""What a call raises: one class with the name of the error, and few subclasses to catch.

`name` is the contract, as in the protocol; icd/errors.py has the table.
"""

from collections.abc import Mapping
from typing import Any

from icd import errors
from icd.errors import IcError


class Error(Exception):
    """A call failed.  `is_retryable`: nothing was done, and the same call may succeed later."""

    def __init__(self, message: str, data: Mapping[str, Any] = {}, code: int = 0) -> None:
        super().__init__(message, data, code)
        self.message = message
        self.code = code
        self.data = dict(data)  # further facts, such as `owner` of a lease that is held

    @property
    def name(self) -> str:
        return str(self.data.get("name", "error"))

    @property
    def hint(self) -> str:
        return str(self.data.get("hint", ""))

    @property
    def exit(self) -> int:
        """The exit status that `icctl` would have."""
        return int(self.data.get("exit", errors.FAILED))

    @property
    def is_retryable(self) -> bool:
        return bool(self.data.get("retryable", False))

    def __str__(self) -> str:
        told = f"{self.name}: {self.message}"
        return f"{told}; {self.hint}" if self.hint else told


class Refused(Error):
    """An expected "no": the lease is held, the version is another one, there is no such run."""


class UnknownOutcome(Error):
    """The call may have been executed.  Read the state before you repeat a write."""


class NoDatabase(Error):
    """The directory has no database; `client.db.init()` makes one."""


def from_wire(message: str, code: int, data: Mapping[str, Any]) -> Error:
    name = data.get("name")
    kind = Error
    if name == errors.UnknownOutcome.name:
        kind = UnknownOutcome
    elif name == errors.NoDatabase.name:
        kind = NoDatabase
    elif data.get("exit") == errors.NO:
        kind = Refused
    return kind(message, data, code)


def from_error(error: IcError) -> Error:
    """What the same code says without a daemon."""
    return from_wire(error.message, error.code, error.data)
