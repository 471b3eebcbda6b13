"""Run in a process of its own, by its path: command lines without a daemon, each in a fresh fork.

    forking.py

Reads a line of JSON for each: argv, cwd, env and limit (seconds).  Says a line of JSON: exit (None
if it had to be killed), seconds, out and err (Latin-1).  `{"settle": seconds}` waits for whatever
was left running, and names what still runs then; that is killed.

All of intercore is loaded once, so that a command costs milliseconds and not a start of Python.
What `icctl` is imported is up to PYTHONPATH, so that code broken on purpose can be tried.
"""

import ctypes
import gc
import json
import os
import posix
import select
import signal
import sys
import time
import traceback

PR_SET_CHILD_SUBREAPER = 36
LOOK_SECONDS = 0.02
SHOWN_BYTES = 1 << 20  # of what a command prints; what comes later is of the same kind


def load() -> None:
    from importlib import import_module

    from icctl import client, direct  # noqa: F401
    from icd.app import registry

    registry.commands()
    registry.every()
    for name in ("sqlite3", "hashlib", "tomllib", "traceback", "icd.config.files", "icd.db.check"):
        import_module(name)


def run(asked: dict) -> dict:
    out, err = os.memfd_create("out"), os.memfd_create("err")
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        become(asked, out, err)
    ended = ends(pid, asked["limit"])
    seconds = time.monotonic() - began
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    found = {"exit": os.waitstatus_to_exitcode(status) if ended else None, "seconds": seconds}
    return found | {"out": read(out), "err": read(err)}


def become(asked: dict, out: int, err: int) -> None:
    """The client, as it would start; never returns."""
    try:
        os.setsid()
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, 64)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        posix.environ.clear()
        posix.environ.update({os.fsencode(k): os.fsencode(v) for k, v in asked["env"].items()})
        from icctl.client import main

        status = main(asked["argv"], "icctl")
        sys.stdout.flush()
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 1
    except BaseException:  # noqa: BLE001 -- it is told, and found there
        traceback.print_exc()
        status = 99
    os._exit(status)


def ends(pid: int, limit: float) -> bool:
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(limit * 1000))
    finally:
        os.close(fd)


def read(fd: int) -> str:
    with open(fd, "rb") as file:
        file.seek(0)
        return file.read(SHOWN_BYTES).decode("latin-1")


def settle(seconds: float) -> list[str]:
    """Orphans are ours: see PR_SET_CHILD_SUBREAPER."""
    deadline = time.monotonic() + seconds
    while left := children():
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_SECONDS)
    told = []
    for pid in left:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                told.append(file.read().replace(b"\0", b" ").decode("latin-1"))
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    return told


def children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    load()
    gc.freeze()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        told = settle(asked["settle"]) if "settle" in asked else run(asked)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
