"""Which hooks the user trusts: recorded in the home directory, never in the project.

A project comes with everything in it, so its database could say whatever its author likes.

    ~/.local/share/intercore/hooks/<digest of the project's path>/
        project            the path, for people
        lock               held by the process that runs hooks of this project
        <sha256>/<name>    the content that was trusted, as it runs

To trust a hook is to keep a copy of it.  The copy is what runs, as long as the file in the project
holds the same: whatever happens to that file between our look and the start of a process, nothing
runs but what was trusted.  To hand a descriptor of the file to the kernel would not do: its content
can change in place.  Nor would a memory file: an interpreter wants a path that it can resolve.
"""

import hashlib
import os
import shutil
import stat
from contextlib import suppress

from icd.db import lock
from icd.errors import HookRefused, NoHook, from_os
from icd.features.hooks import files
from icd.features.hooks.files import OTHERS_WRITE, Found, Looks, Unfit
from icd.features.hooks.store import NAMES

SHARE = ".local/share/intercore/hooks"


class Trust:
    """The trust that a user has in the hooks of one project."""

    def __init__(self, home: str, project: str) -> None:
        self.project = project
        self.looks = Looks(project)
        name = hashlib.sha256(os.fsencode(project)).hexdigest()
        self._place = os.path.join(home, SHARE, name)
        self._lock = lock.FileLock(os.path.join(self._place, "lock"), lock.poll)

    def runnable(self) -> dict[str, str]:
        """What runs for each hook that is trusted and as it was then, by name."""
        if not os.path.isdir(self._place):
            return {}  # the usual case: nothing here was ever trusted
        copies = {found.name: self._copy(found) for found in self.looks.look()}
        return {name: copy for name, copy in copies.items() if copy}

    def look(self) -> tuple[dict[str, str], bool]:
        """What is runnable; and whether another one was trusted, and is changed, refused or gone.

        In this order: what changes meanwhile is still waited for.
        """
        programs = self.runnable()
        others = [name for name in NAMES if name not in programs]
        return programs, any(self._known(name) for name in others)

    def state(self, found: Found) -> str:
        if found.problem:
            return "refused"
        if self._copy(found):
            return "trusted"
        return "changed" if self._known(found.name) else "untrusted"

    def grant(self, name: str) -> Found:
        """Trust a hook with the content that it has now, and no longer with any before."""
        try:
            with (
                files.opened_directory(self.looks.directory) as directory_fd,
                files.opened(name, directory_fd) as fd,
            ):
                sha256 = self._keep(name, fd)
        except FileNotFoundError as exc:
            raise NoHook(f"there is no {name} in {self.looks.directory}") from exc
        except Unfit as exc:
            path = os.path.join(self.looks.directory, name)
            raise HookRefused(f"{path} cannot be trusted: {exc}") from exc
        except OSError as exc:
            raise from_os(exc, f"record the trust in {self._place}") from exc
        self._forget(name, but=sha256)
        return Found(name, os.path.join(self.looks.directory, name), sha256)

    def revoke(self, name: str) -> bool:
        """Trust a hook no longer; whether it was trusted."""
        return self._forget(name)

    def acquire(self, deadline: float) -> None:
        """Be the only one who runs hooks of this project, or raise Locked at the deadline."""
        self._lock.acquire(deadline)

    def release(self) -> None:
        self._lock.close()

    def _copy(self, found: Found) -> str:
        """The path of what was trusted, if the hook still has that content; else nothing."""
        if found.problem:
            return ""
        path = os.path.join(self._place, found.sha256, found.name)
        try:
            there = os.stat(path, follow_symlinks=False)
        except OSError:
            return ""
        ours = stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid()
        return path if ours and not there.st_mode & OTHERS_WRITE else ""

    def _known(self, name: str) -> list[str]:
        """The contents of that hook that are trusted."""
        try:
            contents = os.listdir(self._place)
        except OSError:
            return []
        return [each for each in contents if os.path.lexists(os.path.join(self._place, each, name))]

    def _keep(self, name: str, fd: int) -> str:
        """Copy what is read, and name the copy after what was copied."""
        os.makedirs(os.path.dirname(self._place), mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self._place, mode=0o700)
        draft = os.path.join(self._place, f"draft-{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        os.mkdir(draft, mode=0o700)
        try:
            sha256 = _write(os.path.join(draft, name), fd)
            kept = os.path.join(self._place, sha256)
            with suppress(FileExistsError):
                os.mkdir(kept, mode=0o700)
            os.replace(os.path.join(draft, name), os.path.join(kept, name))
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        with open(os.path.join(self._place, "project"), "wb") as file:
            file.write(os.fsencode(self.project) + b"\n")
        return sha256

    def _forget(self, name: str, but: str = "") -> bool:
        known = [each for each in self._known(name) if each != but]
        for each in known:
            os.unlink(os.path.join(self._place, each, name))
            with suppress(OSError):  # another hook may have the same content
                os.rmdir(os.path.join(self._place, each))
        return bool(known)


def _write(path: str, fd: int) -> str:
    found = hashlib.sha256()
    with open(path, "xb") as file:
        for chunk in files.chunks(fd):
            found.update(chunk)
            file.write(chunk)
        os.fchmod(file.fileno(), 0o500)
        file.flush()
        os.fsync(file.fileno())
    return found.hexdigest()
