"""The way of one warm `sentinel check` through the daemon, seen by sys.setprofile.

Prints how many files of the product it passes, how often it changes from one to another, and how
many functions are called; with an argument, each of them.
"""

import os
import socket
import sys
import tempfile
import threading
import time
import traceback
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import icd

HOME = str(Path(icd.__file__).parent) + os.sep
CHECK = ("sentinel", "check", "a", "b", "--interval=5")
WARM_UP = 30
SECONDS = 30.0


class Walk:
    """Calls of our own functions, in the order in which they are made by any thread."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[tuple[str, str]] = []

    def see(self, frame: FrameType, event: str, _arg: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(HOME):
            place = frame.f_code.co_filename.removeprefix(HOME)
            self.calls.append((place, frame.f_code.co_name))

    def told(self) -> str:
        files = [file for file, _ in self.calls]
        changes = sum(one != other for one, other in pairwise(files))
        return f"{len(set(files))} {changes} {len(files)}"


def frame(project: str, *argv: str) -> bytes:
    late = time.monotonic() + 60
    fields = [f"i{os.urandom(12).hex()}", f"t{late * 1000:.0f}", f"p{os.getpid()}", f"d{project}"]
    fields += [f"r{icd.__version__}", *(f"a{word}" for word in argv)]
    return b"\0".join([b"ic1 %d" % len(fields), *(field.encode() for field in fields), b""])


def ask(path: str, message: bytes, walk: Walk | None = None) -> None:
    """Seen is the way from the door to what is counted afterwards, without the leave-taking."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(SECONDS)
        if walk is not None:
            walk.is_on = True
        sock.connect(path)
        sock.sendall(message)
        assert sock.recv(65536)
        if walk is not None:
            time.sleep(0.2)
            walk.is_on = False


def call(walk: Walk, path: str, project: str) -> None:
    """In a thread beside the daemon's loop; ends the process, also when something is wrong."""
    sys.setprofile(None)
    try:
        _call(walk, path, project)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        raise
    finally:
        sys.stdout.flush()
        os._exit(0)


def _call(walk: Walk, path: str, project: str) -> None:
    while True:
        try:
            ask(path, frame(project, "ping"))
            break
        except OSError:
            time.sleep(0.01)
    ask(path, frame(project, "init"))
    for _ in range(WARM_UP):
        ask(path, frame(project, *CHECK))
    time.sleep(1)  # what the daemon looks for in a database that was just opened is no part of it
    ask(path, frame(project, *CHECK), walk)
    print(walk.told())
    if len(sys.argv) > 4:
        print(*(f"{file} {name}" for file, name in walk.calls), sep="\n")


def main() -> None:
    walk = Walk()
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        project, path = os.path.join(home, "project"), os.path.join(home, "run", "icd.sock")
        os.makedirs(os.path.join(project, ".git"))
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- the daemon's log
        sys.argv = ["icd", "serve", "--socket", path, *sys.argv[1:]]
        threading.setprofile(walk.see)
        threading.Thread(target=call, args=(walk, path, project), daemon=True).start()
        sys.setprofile(walk.see)
        from icd.__main__ import main as daemon

        daemon(["serve", "--socket", path])


if __name__ == "__main__":
    main()
