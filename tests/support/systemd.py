"""A user's systemd for tests: a stand-in that keeps notes, and a real one in namespaces of its own."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.processes import CLEAN, until

SERVE = [sys.executable, "-m", "icd", "serve"]
# Starts its arguments as systemd would: the socket is descriptor 3, and meant for that process.
ACTIVATED = 'exec 3<&$0; exec env LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=icd "$@"'

# Says what systemctl says, notes what it was told, and starts a real daemon as systemd would.
_SYSTEMCTL = """#!/bin/sh
units=$HOME/.config/systemd/user
echo "$*" >>"$FAKE/calls"
[ -f "$FAKE/no-bus" ] && { echo "Failed to connect to bus: No medium found" >&2; exit 1; }
shift
[ "$1" = "$(cat "$FAKE/refuses" 2>/dev/null)" ] && { echo "Job for $* failed." >&2; exit 1; }
start() {
    touch "$FAKE/listening"
    [ -f "$FAKE/broken" ] && { touch "$FAKE/failed"; rm "$FAKE/listening"; return; }
    "$FAKE_PYTHON" -m icd serve --socket "$XDG_RUNTIME_DIR/intercore/icd.sock" \\
        </dev/null >"$FAKE/log" 2>&1 &
    export INTERCORE_SOCKET="$XDG_RUNTIME_DIR/intercore/icd.sock"
    echo $! >"$FAKE/pid"
    until icctl ping --timeout=60s >/dev/null; do sleep 0.05; done
}
stop() {
    rm -f "$FAKE/listening"
    [ -f "$FAKE/pid" ] || return 0
    kill "$(cat "$FAKE/pid")"
    while kill -0 "$(cat "$FAKE/pid")" 2>/dev/null; do sleep 0.05; done
    rm "$FAKE/pid"
}
case $1 in
    show)
        for unit in "$2" "$3"; do
            load=not-found enabled= active=inactive pid=0 stale=no
            [ -f "$units/$unit" ] && load=loaded enabled=disabled
            [ -f "$FAKE/enabled" ] && enabled=enabled
            [ -f "$FAKE/stale" ] && stale=yes
            case $unit in
                *.socket) [ -f "$FAKE/listening" ] && active=active;;
                *) [ -f "$FAKE/pid" ] && active=active pid=$(cat "$FAKE/pid");;
            esac
            [ -f "$FAKE/failed" ] && active=failed
            printf 'Id=%s\\nLoadState=%s\\nActiveState=%s\\nSubState=running\\nResult=success\\n' \\
                "$unit" "$load" "$active"
            [ "$unit$active" = icd.servicefailed ] && echo ExecMainStatus=78
            printf 'UnitFileState=%s\\nNeedDaemonReload=%s\\nMainPID=%s\\n\\n' "$enabled" "$stale" "$pid"
        done;;
    daemon-reload) rm -f "$FAKE/stale";;
    reset-failed) rm -f "$FAKE/failed";;
    enable) touch "$FAKE/enabled"; start;;
    restart) stop; start;;
    disable) rm "$FAKE/enabled"; stop;;
esac
"""

_JOURNALCTL = """#!/bin/sh
echo "journalctl $*" >>"$FAKE/calls"
[ -f "$FAKE/no-journal" ] && { echo "Failed to open journal: No such file" >&2; exit 1; }
cat "$FAKE/journal" 2>/dev/null
case "$*" in *--follow*) exec sleep 1000;; esac
exit 0
"""


class Systemd:
    """The stand-in: `env` is the world of somebody whose programs it shadows."""

    def __init__(self, place: Path, runtime: Path) -> None:
        self.place = place
        self.notes = place / "fake"
        self.units = place / ".config" / "systemd" / "user"
        self.socket = runtime / "intercore" / "icd.sock"
        programs = place / "programs"
        self.notes.mkdir()
        programs.mkdir()
        for name, script in (("systemctl", _SYSTEMCTL), ("journalctl", _JOURNALCTL)):
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        self.env = {
            "PATH": f"{programs}:{CLEAN['PATH']}",
            "HOME": str(place),
            "XDG_RUNTIME_DIR": str(runtime),
            "INTERCORE_SOCKET": str(self.socket),
            "FAKE": str(self.notes),
            "FAKE_PYTHON": sys.executable,
        }

    def calls(self) -> list[str]:
        """What it was told so far, without the questions."""
        file = self.notes / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if not line.startswith("--user show")]

    def close(self) -> None:
        pid = self.notes / "pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)
            until(lambda: not Path(f"/proc/{pid.read_text().strip()}/exe").exists())


# A /run, control groups and processes of its own; what is left of the groups is removed.
_REAL = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/systemd/unit-root "$XDG_RUNTIME_DIR/systemd"
chmod 700 "$XDG_RUNTIME_DIR"
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ours=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir "$ours/$GROUP"
clean_up() {
    systemctl --user exit 2>/dev/null || true
    wait
    echo $$ >"$ours/cgroup.procs"
    find "$ours/$GROUP" -depth -type d -exec rmdir {} +
}
trap clean_up EXIT
echo $$ >"$ours/$GROUP/cgroup.procs"
"""
_START = """
/lib/systemd/systemd --user >/dev/null 2>&1 &
until systemctl --user is-system-running 2>/dev/null | grep -q 'running\\|degraded'; do sleep 0.1; done
"""


def real(script: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Run a script beside a user's systemd; both end with the process namespace that holds them."""
    return _apart(_START + script, home)


def real_is_possible() -> bool:
    """It takes root, or a container that lets us mount; and a daemon that takes a socket over."""
    there = Path("/lib/systemd/systemd").exists() and shutil.which("unshare") is not None
    return there and _apart("", Path("/")).returncode == 0


def _apart(script: str, home: Path) -> "subprocess.CompletedProcess[str]":
    env = {**CLEAN, "HOME": str(home), "XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"}
    command = ["unshare", "-mp", "--fork", "--kill-child", "--mount-proc", "bash", "-c"]
    return subprocess.run(
        [*command, _REAL + script],
        env={**env, "GROUP": f"icd-test-{os.urandom(6).hex()}"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
