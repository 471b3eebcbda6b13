"""lock: what only one process may do at a time.

Locks lie in a directory, and need neither a database nor a daemon.  A daemon that is there acts in
the caller's place, by the same steps on the same directory: see ADR 20.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from icd import procfs
from icd.app import render
from icd.app.invocation import Local, Output, Served, World
from icd.app.types import DURATION
from icd.app.verb import Argument, Column, Command, Option, Table
from icd.errors import NoOwner
from icd.features.locks import directory, owners, store
from icd.features.locks.directory import Place
from icd.features.locks.owners import Owner, Steps
from icd.features.locks.store import Lock
from icd.values.wire import CENTURY_MS

# As long as the original tried, whatever it was told.
PATIENCE_MS = 1000

Name = Annotated[str, Argument("NAME", "Name of the lock.")]
Scope = Annotated[str, Argument("SCOPE", "Scope of the lock, such as a service.")]
Age = Annotated[
    int,
    Meta(ge=0, le=CENTURY_MS),
    DURATION,
    Option("--older-than", "Minimum age of the lock (default 5s)."),
]


# --- parameters -----------------------------------------------------------------------------------


class Acquire(Struct):
    """Acquire the lock NAME of SCOPE for the calling process, the parent of this command.

    The lock is held until it is released or its owner exits; then the next caller gets it.
    A live owner keeps it indefinitely.
    Waits for --timeout, 1s by default.
    Exit 1 if the lock is still held: stderr names the owner, the age, and whether it is alive.
    """

    name: Name
    scope: Scope
    owner: Annotated[
        str | None,
        Option("--owner", "Owner of the lock (default: the calling process).", "PID:HOST"),
    ] = None


class Release(Struct):
    """Release the lock NAME of SCOPE, which the calling process holds.

    This also works as the last command of a shell that holds the lock and execs this process.
    Exit 1 if the lock is free or has another owner, whom stderr names.
    """

    name: Name
    scope: Scope
    owner: Annotated[
        str | None,
        Option("--owner", "Owner of the lock (default: the calling process).", "PID:HOST"),
    ] = None


class List(Struct):
    """List held locks: name, scope, owner and age.

    --json adds the owner's process id and liveness: alive, dead, or unknown.
    """


class Stale(Struct):
    """List the locks whose owner is dead or unreadable, in the columns of 'lock list'.

    A lock without a readable owner must be at least 5 seconds old.
    """

    older_than: Age = 5000


class Clean(Stale):
    """Remove the locks that 'lock stale' lists, and print how many.

    A dead owner's lock need not be removed: the next caller gets it anyway.
    A lock without a readable owner blocks all callers until it is removed.
    """


# --- what is done ---------------------------------------------------------------------------------


def acquire(world: World, f: Acquire) -> Local:
    directory.check_words(f.name, f.scope)
    place = directory.place(world.env)

    def steps() -> Steps[Output]:
        owner = _owner(world, f.owner)
        asked = replace(owner, request=request(world))
        yield from store.acquiring(place, f.name, f.scope, asked, deadline=deadline(world))
        output = _told(world, f, "acquired", owner)
        if owners.liveness(owner, owners.here()) == "dead":
            note = f"process {owner.pid} is not running here: the next caller gets the lock"
            output.stderr = f"{world.program}: lock acquire: warning: {note}\n".encode()
        return output

    def undo() -> Steps[bool]:
        return store.taking_back(place, f.name, f.scope, request(world))

    return _local(world, place, steps, undo)


def release(world: World, f: Release) -> Local:
    directory.check_words(f.name, f.scope)
    place = directory.place(world.env)

    def steps() -> Steps[Output]:
        seconds = max(0.0, deadline(world) - time.monotonic())
        if f.owner is None and _was_taken_by_the_client(world, place, f.name, f.scope):
            owner = _client(world)
        else:
            owner = _owner(world, f.owner)
        yield from store.releasing(place, f.name, f.scope, owner, seconds=seconds)
        return _told(world, f, "released", owner)

    return _local(world, place, steps)


def list_(world: World, _f: List) -> Local:
    place = directory.place(world.env)

    def find() -> Output:
        return _listed(world, store.every(place), LISTED)

    return _local(world, place, lambda: _at_once(find))


def stale(world: World, f: Stale) -> Local:
    place = directory.place(world.env)

    def find() -> Output:
        found = store.every(place)
        left = [e for e in found if store.is_forsaken(e, f.older_than / 1000)]
        return _listed(world, left, STALE)

    return _local(world, place, lambda: _at_once(find))


def clean(world: World, f: Clean) -> Local:
    place = directory.place(world.env)

    def steps() -> Steps[Output]:
        gone = yield from store.cleaning(place, f.older_than / 1000)
        return render.to_json({"cleaned": gone}) if world.json else render.text(f"{gone} cleaned")

    return _local(world, place, steps)


def _at_once(find: Callable[[], Output]) -> Steps[Output]:
    """One step; as a generator, it does nothing before it is asked to."""
    yield from ()
    return find()


def _local(
    world: World,
    place: Place,
    steps: Callable[[], Steps[Output]],
    undo: Callable[[], Steps[bool]] | None = None,
) -> Local:
    """A command that asks no method and concerns no project."""
    served = Served(place.base, partial(fits, world, place), steps, undo)
    return Local(lambda _ask: owners.run(steps()), is_about_project=False, served=served)


def fits(world: World, place: Place) -> bool:
    """Whether a daemon may act for the caller, and the caller still waits for it."""
    within = directory.is_within(place, world.peer, world.pid, world.child)
    return within and time.monotonic() < world.deadline


def deadline(world: World) -> float:
    """When to stop waiting; starting this process took its part of the time."""
    patience_ms = PATIENCE_MS if world.timeout_ms is None else world.timeout_ms
    return (world.began or time.monotonic()) + patience_ms / 1000


def request(world: World) -> str:
    """The id of the call, if it is one that a client makes."""
    given = world.request_id or ""
    return given if given.isascii() and given.isalnum() else ""


def _owner(world: World, given: str | None) -> Owner:
    caller = world.pid or 0
    where = owners.here()
    now = int(time.time())
    if given:
        directory.check_owner(given)
        return owners.named(given, caller, where, now)
    client = procfs.stat(world.peer or os.getpid())
    if client is None or owners.is_adopted(caller, client.session):
        raise NoOwner("the calling process has ended, and no other process would release the lock")
    return owners.of_process(caller, where, now)


def _was_taken_by_the_client(world: World, place: Place, name: str, scope: str) -> bool:
    """Whether the lock's owner became the client.

    A shell starts its last command in its own place: then it is that which holds what it took.
    """
    held = store.look(place, name, scope, owners.here())
    return (
        held is not None and held.owner is not None and owners.is_same(held.owner, _client(world))
    )


def _client(world: World) -> Owner:
    return owners.of_process(world.peer or os.getpid(), owners.here(), int(time.time()))


# --- what is shown --------------------------------------------------------------------------------


def _told(world: World, f: Acquire | Release, what: str, owner: Owner) -> Output:
    if world.json:
        return render.to_json({"name": f.name, "scope": f.scope, "owner": owner.owner, what: True})
    return render.text(f"{what} {f.name}/{f.scope}") if world.verbose else Output(0)


def _listed(world: World, locks: list[Lock], human: Table) -> Output:
    if world.json:
        return render.to_json([_json(lock) for lock in locks])
    return render.shown(
        world, locks, lambda: (render.columns(*_cells(lock)) for lock in locks), human
    )


def _cells(lock: Lock) -> tuple[str, str, str, str]:
    name, scope = directory.on_a_line(lock.name), directory.on_a_line(lock.scope)
    if lock.owner is None:
        return name, scope, "", ""
    return name, scope, directory.on_a_line(lock.owner.owner), _span(lock.age_s)


def _json(lock: Lock) -> dict[str, str | int]:
    """What owner.json does not tell is empty or 0."""
    owner = lock.owner or Owner(0, "", "", 0)
    return {
        "name": lock.name,
        "scope": lock.scope,
        "owner": owner.owner,
        "pid": owner.pid,
        "host": owner.host,
        "created": owner.created,
        "age": lock.age_s,
        "liveness": lock.liveness,
    }


def _span(seconds: int) -> str:
    """Whole seconds as Go writes them: 7s, 1m5s, 2h0m0s."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{minutes}m{rest}s" if minutes or hours else f"{rest}s"
    return f"{hours}h{text}" if hours else text


_COLUMNS = (
    Column("LOCK", "name"),
    Column("SCOPE", "scope"),
    Column("HOLDER", "liveness", "state"),
    Column("PROCESS", lambda lock: lock.owner and lock.owner.pid, "id"),
    Column("FOR", lambda lock: lock.age_s if lock.owner else None, "span"),
    Column("OWNER", lambda lock: lock.owner and lock.owner.owner, spare=True),
)
LISTED = Table(*_COLUMNS, empty="No lock is held. Take one: icctl lock acquire NAME SCOPE")
STALE = Table(*_COLUMNS, empty="No lock is left behind.")

VERBS = [
    Command(
        "lock acquire",
        Acquire,
        acquire,
        summary="Acquire a lock; exit 1 if it is held.",
        examples=[
            "icctl lock acquire sprint B-12 || exit 0",
            "icctl lock acquire deploy web --timeout=30s",
            'icctl lock acquire deploy web --owner="$PPID:$(hostname)"',
        ],
    ),
    Command(
        "lock release",
        Release,
        release,
        summary="Release a lock.",
        examples=[
            "icctl lock release sprint B-12",
            'icctl lock release deploy web --owner="$PPID:$(hostname)"',
        ],
    ),
    Command(
        "lock list",
        List,
        list_,
        human=LISTED,
        summary="List held locks.",
        examples=["icctl lock list", "icctl lock list --json"],
    ),
    Command(
        "lock stale",
        Stale,
        stale,
        human=STALE,
        summary="List locks whose owner is dead.",
        examples=["icctl lock stale", "icctl lock stale --older-than=0s"],
    ),
    Command(
        "lock clean",
        Clean,
        clean,
        summary="Remove locks whose owner is dead.",
        examples=["icctl lock clean", "icctl lock clean --older-than=1h"],
    ),
]
