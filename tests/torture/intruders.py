"""Intruders: a table of attempts, each of which has to be refused with nothing changed.

Another user at the socket; directories, links and files that others put in our way; hooks that
others can write to; paths that lead out of the project in every argument that takes one; too much
of everything; variables of the daemon in what it starts; payloads in what it logs.

An attempt that leaves a trace of its own, such as an event, is in `LEAVE_ROWS`: there, files only
are compared.

In the second half of its time, repositories of strangers are cloned and used: see
tests/torture/repositories_tried.py.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.torture import (
    paths_tried,
    places_tried,
    repositories_tried,
    secrets_tried,
    sizes_tried,
)
from tests.torture.suite import Broken, Run
from tests.torture.target import SECRET, Attempt, Target, difference

ATTEMPTS: dict[str, Attempt] = {
    "another user at the socket": places_tried.another_user,
    "directories of a daemon": places_tried.directories_of_a_daemon,
    "directories of a database": places_tried.directories_of_a_database,
    "hooks that others can change": places_tried.hooks_that_others_can_change,
    "databases of others": paths_tried.databases,
    "files read by the daemon": paths_tried.read_by_the_daemon,
    "files read by the client": paths_tried.read_by_the_client,
    "files written": paths_tried.written,
    "methods that touch files": paths_tried.local_methods,
    "names of files": paths_tried.names_of_files,
    "mirrored names": secrets_tried.mirrored_names,
    "commands too large": sizes_tried.commands,
    "messages too large": sizes_tried.messages,
    "environment of hooks": secrets_tried.environment_of_hooks,
    "environment of agents": secrets_tried.environment_of_agents,
    "secrets in logs": secrets_tried.secrets_in_logs,
}
LEAVE_ROWS = {
    "hooks that others can change",
    "mirrored names",
    "environment of hooks",
    "environment of agents",
    "secrets in logs",
}
NEEDS_ROOT = {"another user at the socket"}


def run(run: Run) -> None:
    """Attempts, and then repositories; both are tried once whatever the time is."""
    for each in (attempts, repositories_tried.run):
        each(Run(run.directory, run.seconds / 2, run.seed, run.code, run.figures))


def attempts(run: Run, only: tuple[str, ...] = ()) -> None:
    """Each attempt once, whatever the time; then again, in other ways, until it is over."""
    with _target(run) as target:
        while True:
            for name in run.rng.sample(only or sorted(ATTEMPTS), len(only or ATTEMPTS)):
                if name in NEEDS_ROOT and os.geteuid() != 0:
                    run.figures["attempts skipped, for they need root"] += 1
                    continue
                _try(target, name)
                run.figures["attempts"] += 1
            if run.is_over:
                return


def _try(target: Target, name: str) -> None:
    before = target.seen()
    try:
        ATTEMPTS[name](target)
    except Broken as exc:
        raise Broken(f"{name}: {exc}") from exc
    after = target.seen()
    if name in LEAVE_ROWS:
        before["rows"] = after["rows"]
    if before != after:
        raise Broken(f"{name}: something changed: {difference(before, after)}")
    log = target.daemon.log.read_text()
    if "Traceback" in log or not target.daemon.answers():
        raise Broken(f"{name}: the daemon suffered: {log[-3000:]}")


@contextmanager
def _target(run: Run) -> Iterator[Target]:
    project, outside = run.directory / "project", run.directory / "outside"
    for directory in (project / ".git", project / "sub", outside):
        directory.mkdir(parents=True)
    (outside / "secret").write_text(SECRET)
    os.mkfifo(outside / "pipe", 0o600)
    daemon = run.code.daemon(env=secrets_tried.HIDDEN)
    try:
        daemon.start()
        target = Target(run, project, outside, daemon)
        for argv in (["init"], ["state", "set", "k", "s", "--value=1"]):
            made = target.icctl(*argv)
            assert made.exit == 0, made
        _plant(run, target)
        yield target
    finally:
        daemon.close()


def _plant(run: Run, target: Target) -> None:
    """A sound database elsewhere, and links to it."""
    made = target.icctl("backup", str(target.outside / "planted.db"))
    assert made.exit == 0, made
    links = {"link.db": "planted.db", "dangling": "absent", "linked": ""}
    for name, to in links.items():
        (target.project / name).symlink_to(target.outside / to)
    (target.project / "loop").symlink_to("loop")
    (target.project / "plain.txt").write_text("plain")
    os.mkfifo(target.project / ".clavain" / "pipe.db", 0o600)
