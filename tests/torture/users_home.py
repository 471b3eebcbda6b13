"""The home of a user who clones what strangers made: what lies in it, and whether it is as it was."""

import hashlib
import os
import shutil
import stat
import time
from pathlib import Path

from tests.torture.code import Code

# Seconds ago that files in here were written last: what deletes by age would find them old.
OLD = 40 * 86_400
HOUR = 3600  # less than any channel keeps a file
ENVELOPE = (
    '{{"version":"1.0.0","namespace":"n","type":"t","session_id":"s","timestamp":"2026-01-01T00:00:00Z",'
    '"source":"intercore","origin":"{origin}","payload":{{"mine":true}}}}\n'
)
CHANNELS = [
    "clavain/dispatch", "interphase/bead", "interphase/lane", "interlock/coordination",
    "intercheck/pressure", "interstat/budget",
]  # fmt: skip
SETTINGS = "idle_seconds = 0.05\nclose_idle_seconds = 2.0\n"
# Where intercore keeps what it knows of its user; a log grows there, and no more than that.
OWN = ".local/state/intercore"
OWN_BYTES = 2_000_000
# That the user was told of a project, once: a mark for each, which allows nothing.
TOLD = ".local/share/intercore/told"

CONTENT = -1  # where the digest stands in what is known of a file
APPEARED, GONE = "appeared", "is gone"
Seen = dict[str, tuple[object, ...]]


class Home:
    """`other` is a project of the user's, whose database must answer and stay as it is."""

    def __init__(self, path: Path, code: Code) -> None:
        self.path = path
        self.other = path / "other"
        self.work = path / "work"
        self.ran = path / "ran"
        for directory in (self.other / ".git", self.work, self.ran, path / "empty", path / ".ssh"):
            directory.mkdir(parents=True)
        for name in ("precious.txt", ".ssh/id_ed25519", "notes.md", f"{OWN}/kept"):
            self._write(name, f"precious: {name}\n")
        self._write(".config/intercore/config.toml", SETTINGS)
        third = path / "third" / ".clavain" / "intercore.db"  # of a project that is not open now
        for channel in CHANNELS:
            for name in ("others", "s1", "loop"):
                envelope = ENVELOPE.format(origin=third)
                self._write(f".interband/{channel}/{name}.json", envelope, age=HOUR)
        env = {"INTERCORE_MODE": "direct", "HOME": str(path)}
        for argv in (["init"], ["state", "set", "k", "s", '--value="mine"']):
            done = code.icctl(*argv, cwd=self.other, env=env)
            assert done.returncode == 0, done
        self._write("other/README.md", "mine\n")
        third.parent.mkdir(parents=True)
        shutil.copy(self.other / ".clavain" / "intercore.db", third)

    def _write(self, name: str, text: str, age: float = OLD) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        then = time.time() - age
        os.utime(path, (then, then))

    def seen(self, *clones: Path) -> Seen:
        """All that is outside of the clones' own `.clavain`."""
        skip = {self.work, self.path / OWN, self.path / TOLD, *self._changing()}
        found = _tree(self.path, skip)
        for clone in clones:
            found |= _tree(clone, skip={clone / ".clavain"})
        log = self._beside("-wal")  # emptied now and then; what it holds was written by somebody
        found[str(log)] = _described(log)[CONTENT:] if log.exists() and log.stat().st_size else ()
        found[str(self.path / OWN / "kept")] = _described(self.path / OWN / "kept")
        return found

    def _changing(self) -> set[Path]:
        """What changes beside a database that is only read."""
        return {self._beside(end) for end in ("-wal", "-shm", ".lock")}

    def _beside(self, end: str) -> Path:
        return self.other / ".clavain" / f"intercore.db{end}"

    def own(self) -> list[Path]:
        return [path for path in (self.path / OWN).rglob("*") if path.is_file()]

    def forget(self, clone: Path) -> None:
        """Moved away first: a daemon may be about to write in there."""
        aside = clone.parent.with_name(f"{clone.parent.name}.gone")
        clone.parent.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _tree(root: Path, skip: set[Path]) -> Seen:
    found: Seen = {str(root): _described(root)}
    for directory, directories, files in os.walk(root):
        here = Path(directory)
        directories[:] = [name for name in directories if here / name not in skip]
        for name in (*directories, *files):
            if here / name not in skip:
                found[str(here / name)] = _described(here / name)
    return found


def _described(path: Path) -> tuple[object, ...]:
    try:
        found = path.lstat()
    except OSError:
        return ("gone",)
    about: tuple[object, ...] = (found.st_ino, oct(found.st_mode), found.st_uid, found.st_gid)
    if stat.S_ISLNK(found.st_mode):
        return (*about, os.readlink(path))
    if not stat.S_ISREG(found.st_mode):
        return about
    return (*about, found.st_size, found.st_mtime_ns, _hash(path, found.st_size))


def _hash(path: Path, size: int) -> str:
    if size > OWN_BYTES:
        return ""  # its time and its size tell enough
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as exc:
        return str(exc.errno)


def difference(before: Seen, after: Seen) -> dict[str, str]:
    """What changed, and how."""
    found = {}
    for name in sorted(before.keys() | after):
        old, new = before.get(name, ("gone",)), after.get(name, ("gone",))
        if old != new:
            found[name] = APPEARED if old == ("gone",) else GONE if new == ("gone",) else "changed"
    return found
