"""From what is wanted to an agent that runs and is known: decide, start, record.

Promises
    - the row is there before the process, and whatever happens in between leaves a row that tells
      it: it names us as the ones about to start it, and its runner speaks up if we do not;
    - whoever is answered has an agent that runs, or a row that says why not.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from icd.errors import DispatchOver, IcError, SpawnFailed, UnreadableInput, Usage
from icd.features.dispatches.agent import commands, launching
from icd.features.dispatches.agent.commands import Asked, Command
from icd.features.dispatches.agent.killing import Target
from icd.features.dispatches.agent.launching import Job, Launched

HASH_CHARACTERS = 16
READ_BYTES = 1024 * 1024


class Wanted(Struct, frozen=True, kw_only=True):
    """Paths are absolute, and as the operating system has them; empty: there is none."""

    project: str
    prompt: str = ""
    output: str = ""
    name: str | None = None
    model: str | None = None
    sandbox: str | None = None
    script: str | None = None
    argv: list[str] = []
    timeout_ms: int | None = None


class Book(Protocol):
    """Where a dispatch is written down; what cannot be written is raised as an IcError."""

    def create(self, wanted: Wanted, prompt_hash: str, output: str) -> str: ...
    def started(self, dispatch_id: str, launched: Launched) -> None: ...
    def failed(self, dispatch_id: str, why: str) -> None: ...
    def status(self, dispatch_id: str) -> str: ...


class Spawned(Struct, frozen=True):
    id: str
    pid: int


def spawn(
    book: Book, wanted: Wanted, *, cwd: str, env: Mapping[str, str], database: str, now_ns: int
) -> Spawned:
    hashed = prompt_hash(wanted.prompt) if wanted.prompt else ""
    place = env.get("TMPDIR") or "/tmp"
    output = wanted.output or os.path.join(cwd, place, f"ic-dispatch-{now_ns}.md")
    if wanted.prompt and _is_same(wanted.prompt, output):
        raise Usage("the output would replace the prompt", hint="give another --output")
    command = _command(wanted, output, cwd=cwd, env=env, database=database)
    dispatch_id = book.create(wanted, hashed, output)
    job = Job(
        id=dispatch_id,
        command=command,
        output=output,
        is_default=not wanted.output,
        timeout_ms=wanted.timeout_ms,
        database=database,
    )
    try:
        launched = launching.launch(job)
    except SpawnFailed as exc:
        with suppress(IcError):  # then whoever looks finds us gone, and nothing started
            book.failed(dispatch_id, exc.message)
        raise
    try:
        _note(book, dispatch_id, launched)
    finally:
        launched.leave()
    return Spawned(dispatch_id, launched.agent.pid)


def prompt_hash(path: str) -> str:
    """The first digits of its SHA-256."""
    import hashlib  # only who has a prompt pays for it

    found = hashlib.sha256()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnreadableInput(f"hash prompt: {path} is not a regular file")
            while data := file.read(READ_BYTES):
                found.update(data)
    except OSError as exc:
        raise UnreadableInput(f"hash prompt: cannot read {path}: {exc.strerror}") from exc
    return found.hexdigest()[:HASH_CHARACTERS]


def _is_same(prompt: str, output: str) -> bool:
    try:
        return os.path.samefile(prompt, output)
    except OSError:
        return False  # the output is yet to be made


def _command(
    wanted: Wanted, output: str, *, cwd: str, env: Mapping[str, str], database: str
) -> Command:
    if wanted.argv:
        return Command(wanted.argv, wanted.project, output, wanted.prompt, is_own=True)
    asked = Asked(
        project=wanted.project,
        prompt=wanted.prompt,
        output=output,
        name=wanted.name,
        model=wanted.model,
        sandbox=wanted.sandbox,
    )
    return commands.find(asked, given=wanted.script, cwd=cwd, env=env, database=database)


def _note(book: Book, dispatch_id: str, launched: Launched) -> None:
    """Write down that it runs; what we cannot write, its runner does."""
    try:
        book.started(dispatch_id, launched)
    except DispatchOver:
        if book.status(dispatch_id) != "cancelled":
            launched.is_recorded()  # it was quicker than we are
            return
        target = Target(dispatch_id, launched.runner, launched.agent)
        target.begin()
        target.finish()
        raise
    except IcError:
        return
    launched.is_recorded()
