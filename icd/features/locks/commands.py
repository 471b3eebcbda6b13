"""`icctl lock …`: who may do what only one may do at a time.

In the caller's own process: locks lie in a directory, and need neither a database nor a daemon.
"""

import os
import time

import click

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World
from icd.app.types import DURATION
from icd.errors import NoOwner
from icd.features.locks import locking, owners, places
from icd.features.locks.locking import Lock
from icd.features.locks.owners import Owner
from icd.values.wire import Result

# As long as the original tried, whatever it was told.
PATIENCE_MS = 1000


class Line(Result):
    """A lock; what owner.json does not tell is empty or 0."""

    name: str
    scope: str
    owner: str
    pid: int
    host: str
    created: int
    age: int
    liveness: str


@click.command("acquire", add_help_option=False, short_help="Take a lock, or say who has it.")
@click.argument("name")
@click.argument("scope")
@click.option("--owner", metavar="PID:HOST", help="Who is to hold it (default: your process).")
def acquire(world: World, *, name: str, scope: str, owner: str | None) -> Local:
    """Take the lock NAME of SCOPE for the calling process, the parent of this command.

    It is held until it is released, or until that process has ended: then whoever asks next gets
    it.  One that is alive keeps it, however long.
    Waits for --timeout, 1s by default.
    Exit 1 if it is held all that time: stderr says by whom, for how long, and if it is alive.

    \b
    Examples:
      icctl lock acquire sprint B-12 || exit 0
      icctl lock acquire deploy web --timeout=30s
      icctl lock acquire deploy web --owner="$PPID:$(hostname)"
    """
    places.check_words(name, scope)

    def run(_ask: Caller) -> Output:
        found = _owner(world, owner)
        place = places.place(world.env)
        locking.acquire(place, name, scope, found, deadline=deadline(world))
        output = _told(world, name, scope, "acquired", found)
        if owners.liveness(found, owners.here()) == "dead":
            note = f"no process {found.pid} runs here: the next who asks gets the lock"
            output.stderr = f"{world.program}: lock acquire: warning: {note}\n".encode()
        return output

    return Local(run, is_about_project=False)


@click.command("release", add_help_option=False, short_help="Give a lock back.")
@click.argument("name")
@click.argument("scope")
@click.option("--owner", metavar="PID:HOST", help="Who holds it (default: your process).")
def release(world: World, *, name: str, scope: str, owner: str | None) -> Local:
    """Give back the lock NAME of SCOPE, which the calling process holds.

    It may also be the last command of the shell that took it: the shell becomes this process then.
    Exit 1 if nobody holds it, or somebody else: stderr says who.

    \b
    Examples:
      icctl lock release sprint B-12
      icctl lock release deploy web --owner="$PPID:$(hostname)"
    """
    places.check_words(name, scope)

    def run(_ask: Caller) -> Output:
        seconds = max(0.0, deadline(world) - time.monotonic())
        place = places.place(world.env)
        if owner is None and _was_taken_by_us(place, name, scope):
            found = _ourselves()
        else:
            found = _owner(world, owner)
        locking.release(place, name, scope, found, seconds=seconds)
        return _told(world, name, scope, "released", found)

    return Local(run, is_about_project=False)


@click.command("list", add_help_option=False, short_help="List the locks that are held.")
def list_(world: World) -> Local:
    """List the locks that are held: name, scope, owner and age.

    With --json also the owner's process, and its liveness: alive, dead, or unknown.

    \b
    Examples:
      icctl lock list
      icctl lock list --json
    """

    def run(_ask: Caller) -> Output:
        return _listed(world, locking.every(places.place(world.env)))

    return Local(run, is_about_project=False)


@click.command("stale", add_help_option=False, short_help="List locks whose owner is dead.")
@click.option("--older-than", type=DURATION, default="5s", help="Taken so long ago (default 5s).")
def stale(world: World, *, older_than: int) -> Local:
    """List the locks that nobody will release, as list does.

    Their owner is dead, or never told who it is.

    \b
    Examples:
      icctl lock stale
      icctl lock stale --older-than=0s
    """

    def run(_ask: Caller) -> Output:
        found = locking.every(places.place(world.env))
        return _listed(world, [e for e in found if locking.is_forsaken(e, older_than / 1000)])

    return Local(run, is_about_project=False)


@click.command("clean", add_help_option=False, short_help="Remove locks whose owner is dead.")
@click.option("--older-than", type=DURATION, default="5s", help="Taken so long ago (default 5s).")
def clean(world: World, *, older_than: int) -> Local:
    """Remove the locks that stale lists, and print how many.

    There is no need to: whoever asks for such a lock gets it.

    \b
    Examples:
      icctl lock clean
      icctl lock clean --older-than=1h
    """

    def run(_ask: Caller) -> Output:
        gone = locking.clean(places.place(world.env), older_than / 1000)
        return render.to_json({"cleaned": gone}) if world.json else render.text(f"{gone} cleaned")

    return Local(run, is_about_project=False)


def deadline(world: World) -> float:
    """Starting this process took its part of the time."""
    patience_ms = PATIENCE_MS if world.timeout_ms is None else world.timeout_ms
    return (world.began or time.monotonic()) + patience_ms / 1000


def _owner(world: World, given: str | None) -> Owner:
    caller = world.pid or 0
    where = owners.here()
    now = int(time.time())
    if given:
        places.check_owner(given)
        return owners.named(given, caller, where, now)
    if owners.is_adopted(caller):
        raise NoOwner("the process that called has ended, and nobody else would release the lock")
    return owners.of_process(caller, where, now)


def _was_taken_by_us(place: places.Place, name: str, scope: str) -> bool:
    """Whether the lock's owner became this process.

    A shell starts its last command in its own place: then it is we who hold what it took.
    """
    held = locking.look(place, name, scope, owners.here())
    return held is not None and held.owner is not None and owners.is_same(held.owner, _ourselves())


def _ourselves() -> Owner:
    return owners.of_process(os.getpid(), owners.here(), int(time.time()))


def _told(world: World, name: str, scope: str, what: str, owner: Owner) -> Output:
    if world.json:
        return render.to_json({"name": name, "scope": scope, "owner": owner.owner, what: True})
    return render.text(f"{what} {name}/{scope}") if world.verbose else Output(0)


def _listed(world: World, locks: list[Lock]) -> Output:
    if world.json:
        return render.to_json([_line(lock) for lock in locks])
    return render.text(*(render.columns(*_cells(lock)) for lock in locks))


def _cells(lock: Lock) -> tuple[str, str, str, str]:
    name, scope = places.on_a_line(lock.name), places.on_a_line(lock.scope)
    if lock.owner is None:
        return name, scope, "", ""
    return name, scope, places.on_a_line(lock.owner.owner), _span(lock.age_s)


def _line(lock: Lock) -> Line:
    owner = lock.owner or Owner(0, "", "", 0)
    return Line(
        lock.name, lock.scope, owner.owner, owner.pid, owner.host, owner.created,
        lock.age_s, lock.liveness,
    )  # fmt: skip


def _span(seconds: int) -> str:
    """Whole seconds as Go writes them: 7s, 1m5s, 2h0m0s."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{minutes}m{rest}s" if minutes or hours else f"{rest}s"
    return f"{hours}h{text}" if hours else text


COMMANDS = [acquire, release, list_, stale, clean]
