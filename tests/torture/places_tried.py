"""Other users, and directories, links and files that others could have put in our way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.processes import PATIENCE, until
from tests.torture import frames
from tests.torture.frames import Reply
from tests.torture.suite import Broken
from tests.torture.target import NOBODY, Target, refused

# Becomes another user, sends what it was given and prints what it hears.
STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(30)
sock.connect(sys.argv[2])
data = sys.stdin.buffer.read()
try:
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    while heard := sock.recv(4096):
        sys.stdout.buffer.write(heard)
except ConnectionError:
    pass
"""


def another_user(target: Target) -> None:
    """Even where somebody opened the way to the socket."""
    value = str(target.run.rng.randrange(2**32))
    words = ("state", "set", "k", "intruder", f"--value={value}")
    request = f'{{"jsonrpc":"2.0","id":1,"method":"state.set","params":{{"cwd":"{target.project}","key":"k","scope_id":"intruder","payload":{value}}}}}\n'
    home, path = target.daemon.home, target.daemon.socket
    home.chmod(0o755)
    os.chmod(path, 0o777)
    try:
        for data in (frames.frame(*words, cwd=target.project), request.encode(), b"ic1"):
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", STRANGER, str(NOBODY), path],
                input=data, capture_output=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            if done.returncode != 0 or done.stdout:
                raise Broken(f"another user was answered: {done}")
    finally:
        home.chmod(0o700)
        os.chmod(path, 0o600)


def directories_of_a_daemon(target: Target) -> None:
    """A daemon listens in a directory of its own, and removes and follows nothing of others."""
    for spoil in target.run.rng.sample(SPOILS, 2):
        place = Path(f"{target.daemon.home}/place")
        place.mkdir(mode=0o700)
        try:
            spoil(place, target)
            done = target.serve(place / "icd.sock")
            if done.returncode == 0:
                raise Broken(f"a daemon served in a place with {spoil.__name__}: {done}")
            told = Reply("exit", 2, done.stdout, done.stderr)
            refused(f"serve in a place with {spoil.__name__}", told)
        finally:
            _remove(place)


def _open_mode(place: Path, target: Target) -> None:
    del target
    place.chmod(0o777)


def _another_owner(place: Path, target: Target) -> None:
    del target
    if os.geteuid() == 0:
        os.chown(place, NOBODY, NOBODY)
    else:
        place.chmod(0o770)


def _a_link_as_directory(place: Path, target: Target) -> None:
    place.rmdir()
    place.symlink_to(target.outside)


def _a_link_as_lock(place: Path, target: Target) -> None:
    (place / "icd.lock").symlink_to(target.outside / "secret")


def _a_file_as_socket(place: Path, target: Target) -> None:
    shutil.copy(target.outside / "secret", place / "icd.sock")


def _a_link_as_socket(place: Path, target: Target) -> None:
    (place / "icd.sock").symlink_to(target.outside / "secret")


SPOILS = [
    _open_mode, _another_owner, _a_link_as_directory, _a_link_as_lock, _a_file_as_socket,
    _a_link_as_socket,
]  # fmt: skip


def directories_of_a_database(target: Target) -> None:
    """A second project whose .clavain, database or lock leads out of it."""
    place = target.run.directory / "second"  # no database is above it
    clavain = place / ".clavain"
    (place / ".git").mkdir(parents=True)
    spoil = target.run.rng.choice(["directory", "database", "dangling", "lock", "companion"])
    try:
        if spoil == "directory":
            clavain.symlink_to(target.outside)
        else:
            clavain.mkdir(mode=0o700)
        if spoil == "database":
            (clavain / "intercore.db").symlink_to(target.outside / "planted.db")
        elif spoil == "dangling":
            (clavain / "intercore.db").symlink_to(target.outside / "new.db")
        elif spoil in ("lock", "companion"):
            shutil.copy(target.outside / "planted.db", clavain / "intercore.db")
            ends = {"lock": ".lock", "companion": "-wal"}
            (clavain / f"intercore.db{ends[spoil]}").symlink_to(target.outside / "new")
        for argv in (["state", "set", "k", "s", "--value=1"], ["init"], ["health"]):
            reply = frames.ask(target.daemon, *argv, cwd=place)
            refused(f"{argv} where the {spoil} is a link", reply)
            done = target.run.code.icctl(*argv, "--no-daemon", cwd=place)
            told = Reply("exit", done.returncode, done.stdout, done.stderr)
            refused(f"{argv} without a daemon where the {spoil} is a link", told)
    finally:
        shutil.rmtree(place)


def hooks_that_others_can_change(target: Target) -> None:
    """Trusted once, and open to others since: it does not run, while its neighbour does."""
    hooks = target.project / ".clavain" / "hooks"
    ran, mark = target.outside / "ran", target.daemon.home / "mark"
    mark.unlink(missing_ok=True)
    hooks.mkdir(mode=0o755)
    try:
        for name, script in (("on-event", f"touch {ran}"), ("on-phase-advance", f"touch {mark}")):
            (hooks / name).write_text(f"#!/bin/sh\n{script}\n")
            (hooks / name).chmod(0o755)
            trusted = target.icctl("hooks", "trust", name)
            if trusted.exit:
                raise Broken(f"a sound hook was refused: {trusted}")
        (hooks / "on-event").chmod(target.run.rng.choice([0o775, 0o757, 0o777]))
        target.daemon.call("events.record", cwd=str(target.project), source="phase", type="advance")
        until(mark.exists)
        if ran.exists():
            raise Broken("a hook ran that others can write to")
        refused("trust such a hook", target.icctl("hooks", "trust", "on-event"))
    finally:
        for name in ("on-event", "on-phase-advance"):
            target.icctl("hooks", "untrust", name)
        shutil.rmtree(hooks)


def _remove(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    else:
        shutil.rmtree(place)
