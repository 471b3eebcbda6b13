"""A scene of the doctor, with a healthy project unless a test says otherwise."""

import time
from collections.abc import Callable

import pytest

from icd.admin.doctor.context import Scene
from icd.db.paths import Where
from tests.conftest import NOW_MS

UID = 1000


@pytest.fixture
def scene(project) -> Callable[..., Scene]:
    def made(**given) -> Scene:
        facts = {
            "where": Where(str(project)),
            "env": {"HOME": str(project), "INTERCORE_LEGACY_DIR": str(project)},
            "uid": UID,
            "now_ms": NOW_MS,
            "deadline": time.monotonic() + 20,
            "door": "native client",
            "library": "/nonexistent",
            "units": lambda: {"icd.socket": "current", "icd.service": "current"},
        }
        return Scene(**facts | given)

    return made


@pytest.fixture
def told():
    """Findings as (check, severity, message), without those that are fine."""

    def shown(findings) -> list[tuple[str, str, str]]:
        return [(f.check, f.severity, f.message) for f in findings if f.severity != "ok"]

    return shown
