"""Run by its path: a Python that has loaded what a program loads, and forks for each call of it.

    forking.py KIND SOCKET        commands, mcp or daemon; it ends with its stdin
    forking.py --ask SOCKET ...   one call, with the directory, environment and files of this process

A call is a line of its own to SOCKET, with four files: what is asked, stdin, stdout and stderr.
It is answered with the number of the process, and with its status when it has ended.
Each is a process of its own, with its own directory, environment and descriptors, as if Python had
started for it; tests/support/forked.py has the other end.
"""

import importlib
import marshal
import os
import select
import socket
import sys
import traceback

NUMBER = 8  # bytes of each of the two answers
# What a program loads sooner or later; which of it is loaded when is not what these tests are about.
LOADED = {
    "commands": ("icctl.direct",),
    "mcp": ("icctl.direct", "icd.mcp.server"),
    "daemon": ("icd.__main__", "icd.server.main"),
}


def serve(kind: str, path: str) -> None:
    load(kind)
    poll, running = select.poll(), {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(100)
        os.write(1, b"ready\n")
        for fd in (0, listener.fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == 0:
                    return
                if fd in running:
                    poll.unregister(fd)
                    end(fd, *running.pop(fd))
                else:
                    pid, line = begin(kind, listener)
                    running[pidfd := os.pidfd_open(pid)] = pid, line
                    poll.register(pidfd, select.POLLIN)


def load(kind: str) -> None:
    for name in LOADED[kind]:
        importlib.import_module(name)
    from icd.app import registry

    for name in registry.modules():
        importlib.import_module(name)
    if kind == "daemon":
        from icd.server.main import _loading

        for _ in _loading():
            pass


def begin(kind: str, listener: socket.socket) -> tuple[int, socket.socket]:
    line, _ = listener.accept()
    _, files, _, _ = socket.recv_fds(line, 1, 4)
    with open(files[0], "rb") as asked:
        asked.seek(0)
        argv, cwd, env = marshal.load(asked)
    pid = os.fork()
    if pid == 0:
        become(kind, argv, cwd, env, files[1:])
    for fd in files[1:]:
        os.close(fd)
    line.sendall(pid.to_bytes(NUMBER, "big"))
    return pid, line


def end(pidfd: int, pid: int, line: socket.socket) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(pidfd)
    with line:
        try:
            line.sendall(status.to_bytes(NUMBER, "big", signed=True))
        except OSError:
            return  # nobody waits for it


def become(kind: str, argv: list[str], cwd: str, env: dict[str, str], files: list[int]) -> None:
    """Never returns."""
    status = 1
    try:
        for number, fd in enumerate(files):
            os.dup2(fd, number)
        os.closerange(3, 100)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = argv
        status = run_daemon() if kind == "daemon" else run_command(argv)
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 -- as Python ends
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)


def run_command(argv: list[str]) -> int:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as icctl/bin/icctl-python does
    from icctl.client import main

    return main(argv[1:], "icctl")


def run_daemon() -> int:
    from icd.__main__ import main

    main()
    return 0


def ask(path: str, *argv: str) -> int:
    env = dict(os.environ)
    with (
        begun(path, list(argv), os.getcwd(), env, [0, 1, 2]) as line,
        line.makefile("rb") as answers,
    ):
        answers.read(NUMBER)
        return int.from_bytes(answers.read(NUMBER), "big", signed=True)


def begun(
    path: str, argv: list[str], cwd: str, env: dict[str, str], files: list[int]
) -> socket.socket:
    """A line on which the answers come."""
    asked = os.memfd_create("asked")
    with open(asked, "wb", closefd=False) as file:
        marshal.dump((argv, cwd, env), file)
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    socket.send_fds(line, [b"\n"], [asked, *files])
    os.close(asked)
    return line


if __name__ == "__main__":
    if sys.argv[1] == "--ask":
        os._exit(ask(*sys.argv[2:]))
    serve(*sys.argv[1:])
