"""What a clone's directory may hold where we expect a file or a directory of ours."""

import os
import shutil
from collections.abc import Callable

from tests.torture.repositories.clone import PAGE, Clone, Primitive
from tests.torture.repositories.journals import header, place, trailer

LEFT = [".unfinished", ".restore", ".adopt", ".backup", ".tmp", ".corrupt"]
BACKUP = ".backup-20200101-000000"
FILES = ["link", "dangling link", "link to a device", "pipe", "directory", "socket", "loop"]


def directory(kind: str) -> Primitive:
    """In the place of `.clavain`."""

    def make(clone: Clone) -> None:
        shutil.rmtree(clone.clavain)
        if kind == "file":
            clone.clavain.write_text("no directory")
        elif kind == "link to another project's":
            clone.clavain.symlink_to(clone.other.parent)
        else:
            place(kind, clone, clone.clavain)

    return make


def database(kind: str) -> Primitive:
    def make(clone: Clone) -> None:
        clone.database.unlink()
        if kind == "hard link to another database":
            os.link(clone.other, clone.database)
        elif kind == "hard link to a closed database":
            os.link(clone.third, clone.database)
        else:
            place(kind, clone, clone.database)

    return make


def beside(kind: str, end: str) -> Primitive:
    def make(clone: Clone) -> None:
        place(kind, clone, clone.beside(end))

    return make


def mode(name: str, bits: int) -> Primitive:
    """Open to others, or closed to its owner."""
    return lambda clone: (clone.root / name).chmod(bits)


def within(name: str, kind: str) -> Primitive:
    """Something else in the place of a directory or file of `.clavain`."""

    def make(clone: Clone) -> None:
        path = clone.clavain / name
        if path.is_dir():
            shutil.rmtree(path)
        place(kind, clone, path)

    return make


def git(write: Callable[[Clone], str | bytes]) -> Primitive:
    """A `.git` that is a file: it names the main checkout, whose database would be used."""

    def make(clone: Clone) -> None:
        shutil.rmtree(clone.clavain)
        shutil.rmtree(clone.root / ".git")
        content = write(clone)
        data = content if isinstance(content, bytes) else content.encode()
        (clone.root / ".git").write_bytes(data)

    return make


def git_pipe(clone: Clone) -> None:
    shutil.rmtree(clone.root / ".git")
    shutil.rmtree(clone.clavain)
    os.mkfifo(clone.root / ".git")


def git_elsewhere(clone: Clone) -> str:
    """The clone's own commondir leads to another project."""
    inside = clone.root / "gitdir"
    inside.mkdir()
    (inside / "commondir").write_text(f"{clone.home}/other/.git\n")
    return f"gitdir: {inside}\n"


def deep(clone: Clone) -> None:
    """Directories as deep as names go, each with a database of its own."""
    path = clone.root
    for _ in range(20):
        path = path / "d"
    (path / ".clavain").mkdir(parents=True)
    shutil.copy(clone.database, path / ".clavain")


def upgraded(kind: str, name: str = "ours-1003") -> Primitive:
    """Before an upgrade a backup is written under this name."""

    def make(clone: Clone) -> None:
        clone.sound(name)
        place(kind, clone, clone.beside(".unfinished"))

    return make


def upgraded_with_a_journal(clone: Clone) -> None:
    """What is left of a backup has a journal of its own, which names a file of the user's."""
    content = clone.sound("ours-1003")
    clone.beside(".unfinished").write_bytes(content)
    journal = header(len(content) // PAGE) + trailer(str(clone.precious).encode())
    for end in (".unfinished-journal", ".restore-journal", ".adopt-journal"):
        clone.beside(end).write_bytes(journal)


def upgraded_with_backups(clone: Clone) -> None:
    """More than are kept, and each leads elsewhere."""
    clone.sound("ours-1003")
    for number in range(10):
        place("link", clone, clone.beside(f".backup-2020010{number}-000000"))
    for number in range(10):
        place("hard link", clone, clone.beside(f".backup-2020020{number}-000000"))


def noted(content: Callable[[Clone], bytes], size: int = 0) -> Primitive:
    """The lock is a file like any other: what stands in it was written by anybody."""

    def make(clone: Clone) -> None:
        clone.sound(wal=True)
        clone.beside(".lock").write_bytes(content(clone))
        if size:
            os.truncate(clone.beside(".lock"), size)

    return make


def dispatches(clone: Clone) -> None:
    """Traces of agents that were never there: links and pipes where we read and write."""
    place_ = clone.clavain / "dispatches"
    place_.mkdir()
    for name in ("disp0001", "planted"):
        for end, kind in ((".out", "link"), (".verdict", "pipe"), (".json", "link to a device")):
            place(kind, clone, place_ / f"{name}{end}")


PRIMITIVES: dict[str, Primitive] = {
    **{f".clavain is a {kind}": directory(kind) for kind in ("link to a directory", "dangling link", "loop", "pipe", "socket", "file", "link to another project's")},
    **{f"database is a {kind}": database(kind) for kind in (*FILES, "hard link", "link to a password", "link to another database", "hard link to another database", "hard link to a closed database")},
    **{f"lock is a {kind}": beside(kind, ".lock") for kind in (*FILES, "hard link")},
    **{f"{end} is left as a link": beside("link", end) for end in LEFT},
    **{f"{end} is left as a dangling link": beside("dangling link", end) for end in LEFT[:3]},
    **{f"backup is a {kind}": beside(kind, BACKUP) for kind in ("link", "dangling link", "pipe", "directory")},
    **{f"{name} is a {kind}": within(name, kind) for name in ("hooks", "dispatches", ".gitignore") for kind in ("link to a directory", "pipe", "dangling link")},
    ".clavain open to all": mode(".clavain", 0o777),
    "database open to all": mode(".clavain/intercore.db", 0o666),
    "database closed to its owner": mode(".clavain/intercore.db", 0),
    "database read-only": mode(".clavain/intercore.db", 0o400),
    **{f"upgrade whose backup is a {kind}": upgraded(kind) for kind in (*FILES, "hard link")},
    "upgrade of the original's whose backup is a link": upgraded("link", "original-5"),
    "upgrade whose backup has a journal": upgraded_with_a_journal,
    "upgrade with too many backups": upgraded_with_backups,
    "lock of garbage": noted(lambda clone: clone.rng.randbytes(3000)),
    "lock of one byte": noted(lambda _: b"\xff"),
    "lock of escapes": noted(lambda _: b"open \x1b[31m\x9b \x00 1 2 3\n"),
    "lock of large numbers": noted(lambda _: b"open " + b"9" * 4000 + b" -1 -1 -1 -1\n"),
    "lock that is huge": noted(lambda _: b"open 1 1 1 1 1 1 1\n", size=1 << 31),
    "traces of agents": dispatches,
    "databases in depth": deep,
    "git names another project": git(lambda clone: f"gitdir: {clone.home}/other/.git\n"),
    "git names another project by a directory of its own": git(git_elsewhere),
    "git names the root": git(lambda _: "gitdir: /\n"),
    "git names a device": git(lambda _: "gitdir: /dev/zero\n"),
    "git is huge": git(lambda _: b"gitdir: " + b"x" * 5_000_000),
    "git is binary": git(lambda clone: clone.rng.randbytes(500)),
    "git is a pipe": git_pipe,
}  # fmt: skip
