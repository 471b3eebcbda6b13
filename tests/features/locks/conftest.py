"""Where the locks of a test lie."""

import itertools
from pathlib import Path

import pytest

from icd.features.locks.directory import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "locks"))


@pytest.fixture(
    params=itertools.product(["base", "name"], ["link", "file", "writable"]), ids="-".join
)
def unfit(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Path:
    """What lies in the place of a directory for locks."""
    level, fault = request.param
    if level == "name":
        place.make()
    path = Path(place.base if level == "base" else place.name("n"))
    if fault == "link":
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    elif fault == "file":
        path.touch()
    else:
        path.mkdir()
        path.chmod(0o777)
    return path
