"""Fixtures for legacy files: real ones, in a directory of their own."""

import os

import pytest

from icd.features.compat.files import find, read


@pytest.fixture
def folder(tmp_path):
    found = tmp_path / "legacy"
    found.mkdir()
    return found


@pytest.fixture
def band(tmp_path):
    """The interband root."""
    return tmp_path / "home" / ".interband"


@pytest.fixture
def found(folder, band):
    """What is found there, by key."""

    def files(key=None):
        env = {"INTERCORE_LEGACY_DIR": str(folder), "HOME": str(band.parent)}
        return find(env, "/", key)

    return files


@pytest.fixture
def only(found):
    """Read the only file there is."""

    def entry():
        (file,) = found()
        return read(file)

    return entry


@pytest.fixture
def write(folder):
    """Write a legacy file, last written at a moment in milliseconds."""

    def written(name, content=b"", *, mtime_ms=1_700_000_000_250):
        path = os.path.join(os.fsencode(folder), os.fsencode(name))
        with open(path, "wb") as file:
            file.write(content)
        os.utime(path, ns=(0, mtime_ms * 1_000_000))
        return path

    return written
