"""The service: units that systemd accepts, and `icctl service …` with a systemd and without one."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from icd import __version__
from icd.admin.service import systemd as units
from tests.support.processes import CLEAN, PATIENCE, Daemon, door, icctl
from tests.support.systemd import Systemd, real, real_is_possible

# Recorded in docs/service.md, with what is left.
EXPOSURE, EXPOSURE_IN_THE_SANDBOX = 9.1, 5.4
ODD = "100 % of $HOME; é"


@pytest.fixture
def systemd(tmp_path: Path):
    with tempfile.TemporaryDirectory(
        prefix="icd-", dir="/tmp"
    ) as runtime:  # a socket's path is short
        found = Systemd(tmp_path, Path(runtime))
        yield found
        found.close()


@pytest.fixture
def service(systemd: Systemd, tmp_path: Path):
    def run(*words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        done = icctl("service", *words, cwd=tmp_path, env={**systemd.env, **env}, timeout=200)
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return run


def written(systemd: Systemd) -> dict[str, str]:
    """All files below the user's units."""
    return {
        str(path.relative_to(systemd.units)): path.read_text()
        for path in systemd.units.rglob("*")
        if path.is_file()
    }


# --- the units as they are installed --------------------------------------------------------


@pytest.fixture(params=["plain", "with spaces", ODD], ids=["plain", "spaces", "odd"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """All units, with an interpreter in such a directory."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: install Debian's systemd")
    python = tmp_path / request.param / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    for unit in units.look({"XDG_CONFIG_HOME": str(tmp_path)}, str(python)):
        units.write(unit)
    return tmp_path / "systemd" / "user"


def analyze(*words: object, home: Path) -> "subprocess.CompletedProcess[str]":
    """Its own sockets would not fit into the long name of a test's directory."""
    with tempfile.TemporaryDirectory(prefix="run-", dir="/tmp") as runtime:
        return subprocess.run(
            ["systemd-analyze", "--user", *map(str, words)],
            env={**CLEAN, "HOME": str(home), "XDG_RUNTIME_DIR": runtime},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip


@pytest.mark.parametrize("sandbox", [False, True])
def test_systemd_has_nothing_to_say_against_the_units(installed: Path, sandbox: bool):
    if not sandbox:
        shutil.rmtree(installed / "icd.service.d")

    done = analyze("verify", installed / "icd.socket", installed / "icd.service", home=installed)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_would_complain_about_another_interpreter(tmp_path: Path):
    """The test above can fail."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: install Debian's systemd")
    for unit in units.look({"XDG_CONFIG_HOME": str(tmp_path)}, str(tmp_path / "none here")):
        units.write(unit)
    service = tmp_path / "systemd" / "user" / "icd.service"

    done = analyze("verify", service, home=tmp_path)

    assert f"{tmp_path}/none here" in done.stderr


@pytest.mark.parametrize("sandbox, limit", [(False, EXPOSURE), (True, EXPOSURE_IN_THE_SANDBOX)])
def test_the_exposure_is_at_most_what_is_recorded(installed: Path, sandbox: bool, limit: float):
    if not sandbox:
        shutil.rmtree(installed / "icd.service.d")

    done = analyze("security", "--offline=yes", installed / "icd.service", home=installed)

    assert done.returncode == 0, done.stderr
    (score,) = re.findall(r"exposure level for icd.service: ([0-9.]+)", done.stdout)
    assert float(score) <= limit
    described = (Path(__file__).parents[3] / "docs" / "service.md").read_text(encoding="utf-8")
    assert f"**{limit}**" in described


# --- install --------------------------------------------------------------------------------


def test_install_writes_the_units_and_a_call_goes_through(service: Any, systemd: Systemd):
    done = service("install")

    pid = (systemd.notes / "pid").read_text().strip()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"written {systemd.units}/icd.socket",
        f"written {systemd.units}/icd.service",
        "ran systemctl --user daemon-reload",
        "ran systemctl --user enable --now icd.socket",
        f"icd {__version__} (pid {pid}) answers at {systemd.socket}",
    ]
    assert systemd.calls() == ["--user daemon-reload", "--user enable --now icd.socket"]
    found = written(systemd)
    assert found.keys() == {"icd.socket", "icd.service"}
    (python,) = re.findall(
        r'^ExecStart=:"(.+)" -E -P -m icd serve$', found["icd.service"], re.MULTILINE
    )
    assert Path(python).parent == Path(sys.executable).parent


def test_a_second_install_finds_nothing_to_do(service: Any, systemd: Systemd):
    assert service("install").returncode == 0
    before = systemd.calls()

    again = service("install")

    assert again.returncode == 0
    assert again.stdout.splitlines()[:2] == [
        f"unchanged {systemd.units}/icd.socket",
        f"unchanged {systemd.units}/icd.service",
    ]
    assert systemd.calls() == before


def test_install_as_json(service: Any, systemd: Systemd):
    done = json.loads(service("install", "--json").stdout)

    assert done["files"][0] == {"path": f"{systemd.units}/icd.socket", "change": "written"}
    assert done["commands"][0] == "systemctl --user daemon-reload"
    assert done["daemon"]["version"] == __version__


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_dry_run_tells_everything_and_changes_nothing(service: Any, systemd: Systemd, words: Any):
    done = service("install", "--dry-run", *words)

    assert (done.returncode, done.stderr) == (0, "")
    for said in (f"{systemd.units}/icd.service", "ListenStream=%t/intercore/icd.sock", "daemon-reload", "enable --now icd.socket"):  # fmt: skip
        assert said in done.stdout
    assert systemd.calls() == []
    assert not systemd.units.exists()


def test_what_the_dry_run_shows_is_what_is_written(service: Any, systemd: Systemd):
    announced = json.loads(service("install", "--dry-run", "--json").stdout)

    service("install")

    assert [file["text"] for file in announced["files"]] == [
        written(systemd)[name] for name in ("icd.socket", "icd.service")
    ]
    assert service("install", "--dry-run").stdout == "nothing to do\n"


def test_units_of_another_installation_are_replaced_and_a_running_daemon_restarted_with_now(
    service: Any, systemd: Systemd
):
    service("install")
    file = systemd.units / "icd.service"
    current = file.read_text()
    file.write_text(current.replace('ExecStart=:"', 'ExecStart=:"/gone'))
    first = (systemd.notes / "pid").read_text()

    done = service("install", "--now")

    assert done.returncode == 0, done.stderr
    assert file.read_text() == current
    assert systemd.calls()[2:] == ["--user daemon-reload", "--user restart icd.socket"]
    assert (systemd.notes / "pid").read_text() != first


def test_the_sandbox_is_a_wish_that_is_remembered(service: Any, systemd: Systemd):
    service("install", "--sandbox")
    file = systemd.units / "icd.service.d" / "sandbox.conf"
    current = file.read_text()
    file.write_text(f"{current}# of an older version\n")

    done = service("install")

    assert f"written {file}" in done.stdout
    assert file.read_text() == current


@pytest.mark.parametrize("kind", ["file", "masked", "dangling"])
def test_a_unit_of_somebody_else_is_kept_unless_forced(service: Any, systemd: Systemd, kind: str):
    systemd.units.mkdir(parents=True)
    file = systemd.units / "icd.service"
    if kind == "file":
        file.write_text("[Service]\nExecStart=/bin/true\n")
    else:
        file.symlink_to("/dev/null" if kind == "masked" else "/nonexistent/icd.service")

    refused = service("install")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"icctl: service install: {file} was not written by icctl;"
        " move it away, or overwrite it with --force\n"
    )
    assert systemd.calls() == []
    assert os.listdir(systemd.units) == ["icd.service"]
    assert service("install", "--force").returncode == 0
    assert not file.is_symlink()
    assert file.read_text().startswith(units.MARK)


def test_a_daemon_in_the_foreground_is_told_and_left_alone(service: Any, systemd: Systemd):
    daemon = Daemon()
    daemon.socket = str(systemd.socket)  # not a link to one: those are ignored
    systemd.socket.parent.mkdir(mode=0o700)
    with closing(daemon.start()):
        done = service("install")

        assert done.returncode == 2
        assert done.stderr == (
            f"icctl: service install: icd (pid {daemon.pid}) answers at {systemd.socket}, and"
            " systemd did not start it; stop it with 'icctl service stop' and retry\n"
        )
        assert systemd.calls() == []
        assert not systemd.units.exists()


def test_a_daemon_that_does_not_start_is_told(service: Any, systemd: Systemd):
    (systemd.notes / "broken").touch()

    done = service("install")

    assert done.returncode == 2
    assert done.stderr == (
        "icctl: service install: the units are installed, but no daemon answers at"
        f" {systemd.socket}; see 'icctl service status' and 'icctl service logs'\n"
    )


def test_after_a_failure_install_makes_systemd_forget_it(service: Any, systemd: Systemd):
    (systemd.notes / "broken").touch()
    service("install")
    (systemd.notes / "broken").unlink()

    done = service("install")

    assert done.returncode == 0
    assert systemd.calls()[2:] == [
        "--user reset-failed icd.socket icd.service", "--user enable --now icd.socket",
    ]  # fmt: skip


def test_what_systemctl_refuses_is_passed_on(service: Any, systemd: Systemd):
    (systemd.notes / "refuses").write_text("enable")

    done = service("install")

    assert done.returncode == 2
    assert "systemctl --user enable --now icd.socket failed: Job for enable" in done.stderr


def test_a_socket_that_icctl_does_not_ask_is_a_warning(service: Any, systemd: Systemd):
    done = service("install", INTERCORE_SOCKET="/elsewhere/icd.sock")

    assert done.returncode == 0
    assert done.stderr == (
        "icctl: service install: warning: icctl connects to /elsewhere/icd.sock, systemd listens"
        f" at {systemd.socket}; set INTERCORE_SOCKET\n"
    )


def test_a_directory_that_cannot_be_written_is_told(service: Any, systemd: Systemd, tmp_path: Path):
    (tmp_path / ".config").write_text("not a directory")

    done = service("install")

    assert done.returncode == 2
    assert f"cannot write {systemd.units}/icd.socket: Not a directory" in done.stderr


# --- uninstall ------------------------------------------------------------------------------


def test_uninstall_stops_the_service_and_removes_its_files(service: Any, systemd: Systemd):
    service("install", "--sandbox")

    done = service("uninstall")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"removed {systemd.units}/icd.socket",
        f"removed {systemd.units}/icd.service",
        f"removed {systemd.units}/icd.service.d/sandbox.conf",
        "ran systemctl --user disable --now icd.socket icd.service",
        "ran systemctl --user daemon-reload",
    ]
    assert list(systemd.units.iterdir()) == []
    assert not systemd.socket.exists()


def test_a_second_uninstall_finds_nothing_to_do(service: Any, systemd: Systemd):
    service("install")
    service("uninstall")
    before = systemd.calls()

    done = service("uninstall")

    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing to do\n", "")
    assert systemd.calls() == before


def test_uninstall_keeps_the_users_own_files(service: Any, systemd: Systemd):
    service("install", "--sandbox")
    mine = systemd.units / "icd.service.d" / "override.conf"
    mine.write_text("[Service]\nMemoryMax=4G\n")
    other = systemd.units / "icd.service"
    other.write_text("[Service]\nExecStart=/bin/true\n")

    done = service("uninstall")

    assert f"kept {other}" in done.stdout
    assert written(systemd).keys() == {"icd.service", "icd.service.d/override.conf"}
    assert "--user disable --now icd.socket" in systemd.calls()


def test_a_dry_run_of_uninstall_changes_nothing(service: Any, systemd: Systemd):
    service("install")
    before = written(systemd), systemd.calls()

    done = service("uninstall", "--dry-run")

    assert done.stdout.splitlines() == [
        "would run systemctl --user disable --now icd.socket icd.service",
        f"would remove {systemd.units}/icd.socket",
        f"would remove {systemd.units}/icd.service",
        "would run systemctl --user daemon-reload",
    ]
    assert (written(systemd), systemd.calls()) == before


# --- status ---------------------------------------------------------------------------------


def test_status_of_a_service_that_works(service: Any, systemd: Systemd):
    service("install")
    pid = (systemd.notes / "pid").read_text().strip()

    done = service("status")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "icd.socket\tcurrent\tenabled\tactive (running)",
        "icd.service\tcurrent\tenabled\tactive (running)",
        f"icd {__version__} (pid {pid}) answers at {systemd.socket}",
    ]


def test_status_as_json(service: Any, systemd: Systemd):
    service("install")

    done = json.loads(service("status", "--json").stdout)

    assert done["works"] is True
    assert done["problems"] == []
    assert done["daemon"]["version"] == __version__
    assert done["socket"] == str(systemd.socket)
    assert done["units"][0]["found"] == "current"


def test_status_of_a_service_that_is_not_installed(service: Any, systemd: Systemd):
    done = service("status")

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[2:] == [
        "problem: icd.socket is not installed; run 'icctl service install'",
        "problem: icd.service is not installed; run 'icctl service install'",
    ]


def test_status_names_what_is_wrong_although_it_works(service: Any, systemd: Systemd):
    service("install")
    file = systemd.units / "icd.service"
    file.write_text(file.read_text() + "# of an older version\n")
    (systemd.notes / "stale").touch()
    (systemd.notes / "enabled").unlink()

    done = service("status")

    assert done.returncode == 0
    problems = [line for line in done.stdout.splitlines() if line.startswith("problem: ")]
    assert problems == [
        f"problem: {file} belongs to another installation or version; run 'icctl service install'",
        "problem: systemd has not reloaded icd.socket; run 'icctl service install'",
        "problem: systemd has not reloaded icd.service; run 'icctl service install'",
        "problem: icd.socket is not enabled for the next login; run 'icctl service install'",
    ]


def test_status_of_a_service_that_has_failed(service: Any, systemd: Systemd):
    (systemd.notes / "broken").touch()
    service("install")

    done = service("status")

    assert done.returncode == 1
    assert (
        "problem: icd.service has failed (success, exit 78); see 'icctl service logs'"
        in done.stdout
    )


def test_status_does_not_take_another_daemon_for_the_service(service: Any, systemd: Systemd):
    service("install")
    pid = int((systemd.notes / "pid").read_text())
    (systemd.notes / "pid").write_text("1")

    done = service("status")

    (systemd.notes / "pid").write_text(str(pid))
    assert done.returncode == 1
    assert f"systemd did not start the icd that answers (pid {pid}); stop it" in done.stdout


# --- logs -----------------------------------------------------------------------------------

OURS = '{"time":"2026-01-31T12:00:00Z","level":"warning","msg":"slow call","method":"state.get","ms":1200}'
JOURNAL = [
    {"MESSAGE": "Started The intercore daemon.", "__REALTIME_TIMESTAMP": "1769860800000000", "PRIORITY": "6", "SYSLOG_IDENTIFIER": "systemd"},
    {"MESSAGE": OURS, "__REALTIME_TIMESTAMP": "1769860801000000", "PRIORITY": "6", "SYSLOG_IDENTIFIER": "icd"},
]  # fmt: skip


@pytest.fixture
def journal(systemd: Systemd) -> Path:
    file = systemd.notes / "journal"
    file.write_text("".join(f"{json.dumps(entry)}\n" for entry in JOURNAL))
    return file


def test_logs_are_readable(service: Any, systemd: Systemd, journal: Path):
    done = service("logs", TZ="UTC")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "2026-01-31 12:00:00 info Started The intercore daemon. source=systemd",
        "2026-01-31 12:00:01 warning slow call method=state.get ms=1200",
    ]
    (asked,) = systemd.calls()
    assert asked.startswith("journalctl --user-unit=icd.service --output=json")
    assert asked.endswith("--lines=100")


def test_logs_as_json_are_the_lines_of_the_daemon(service: Any, journal: Path):
    lines = service("logs", "--json").stdout.splitlines()

    assert lines[1] == OURS
    assert json.loads(lines[0])["source"] == "systemd"


@pytest.mark.parametrize(
    "words, asked",
    [
        (["--lines=5"], "--lines=5"),
        (["--since=-1h"], "--since=-1h"),
        (["--since", "1 hour ago", "--lines", "7"], "--since=1 hour ago --lines=7"),
    ],
)
def test_logs_asks_the_journal_for_what_was_asked(
    service: Any, systemd: Systemd, journal: Path, words: list[str], asked: str
):
    service("logs", *words)

    assert systemd.calls()[0].endswith(f" --no-pager {asked}")


def test_logs_go_on_until_they_are_interrupted(systemd: Systemd, journal: Path, tmp_path: Path):
    with subprocess.Popen(
        [door / "icctl", "service", "logs", "--follow"],
        cwd=tmp_path, env={**CLEAN, **systemd.env}, stdout=subprocess.PIPE,
        start_new_session=True, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in JOURNAL]

            assert lines[1].endswith("slow call method=state.get ms=1200\n")
            assert process.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(PATIENCE) == -signal.SIGINT


def test_an_empty_journal_is_told(service: Any):
    done = service("logs")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "icctl: service logs: warning: the journal has no entries of icd.service\n"
    )


def test_a_journal_that_cannot_be_read_is_told(service: Any, systemd: Systemd):
    (systemd.notes / "no-journal").touch()

    done = service("logs")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("icctl: service logs: journalctl failed: Failed to open journal")
    assert "stderr" in done.stderr


# --- with a real one ------------------------------------------------------------------------

# A container that forbids to mount can install nothing against that.
REAL = real_is_possible()

LIFE = """
client="import sys; from icctl.client import main; sys.exit(main(sys.argv[1:], 'icctl'))"
icctl() { "$HOME/virtual/bin/python" -E -P -c "$client" "$@"; }
pid() { systemctl --user show icd.service --property=MainPID --value; }
cd "$HOME"
icctl service install >/dev/null
icctl service install | grep -c ^unchanged
icctl service status | cut -f 1-3 | sed '$d'
first=$(pid)
systemctl --user reload icd.service
icctl ping --timeout=60s
[ "$(pid)" = "$first" ] && echo "reloaded, and still the same process"
systemctl --user kill --signal=KILL icd.service
icctl ping --timeout=60s
second=$(pid)
[ "$second" != "$first" ] && echo "killed, and another one started"
icctl service install --now >/dev/null
[ "$(pid)" != "$second" ] && echo "restarted"
icctl service install --sandbox --now >/dev/null
awk '$5 == "/" { print "sandbox: /", substr($6, 1, 2) }' "/proc/$(pid)/mountinfo"
mkdir -p .config/intercore
echo 'bad = 1' >.config/intercore/config.toml
systemctl --user stop icd.service 2>/dev/null
icctl ping --timeout=60s || echo "given up: $?"
icctl service status | grep icd.service.has || true
rm .config/intercore/config.toml
icctl service install | grep ^ran
icctl service uninstall >/dev/null
find .config/systemd "$XDG_RUNTIME_DIR/intercore" -name 'icd.s*'
icctl service uninstall
"""


@pytest.mark.long
@pytest.mark.skipif(not REAL, reason="no name space of our own to start a systemd in")
@pytest.mark.parametrize("place", ["plain", ODD])
def test_a_real_systemd_starts_restarts_and_ends_the_daemon(tmp_path: Path, place: str):
    home = tmp_path / place
    home.mkdir()
    # The same installation by another path, which the units must spell right.
    (home / "virtual").symlink_to(Path(sys.executable).parent.parent)

    done = real(LIFE, home)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2",
        "icd.socket\tcurrent\tenabled",
        "icd.service\tcurrent\tindirect",
        "pong",
        "reloaded, and still the same process",
        "pong",
        "killed, and another one started",
        "restarted",
        "sandbox: / ro",
        "given up: 1",
        "problem: icd.service has failed (exit-code, exit 78); see 'icctl service logs', then run 'icctl service install'",
        "ran systemctl --user reset-failed icd.socket icd.service",
        "ran systemctl --user enable --now icd.socket",
        "nothing to do",
    ]


# --- without systemd, and through the daemon ------------------------------------------------


@pytest.mark.parametrize("verb", ["install", "uninstall", "status"])
@pytest.mark.parametrize("lacks", ["systemctl", "manager"])
def test_without_systemd_there_is_a_sentence_and_a_way(
    service: Any, systemd: Systemd, tmp_path: Path, verb: str, lacks: str
):
    empty = tmp_path / "empty"
    empty.mkdir()
    (systemd.notes / "no-bus").touch()
    # The launcher of the Python client needs readlink; nothing of systemd may be beside it.
    for name in ("readlink", "sh"):
        (empty / name).symlink_to(shutil.which(name) or "")

    done = service(verb, **({"PATH": str(empty)} if lacks == "systemctl" else {}))

    cause = {
        "systemctl": "there is no systemctl here",
        "manager": "the systemd of this user cannot be reached: Failed to connect to bus: No medium found",
    }[lacks]
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"icctl: service {verb}: {cause}; run 'icctl service start',"
        " or 'icd serve' under another supervisor\n"
    )
    assert not systemd.units.exists()


def test_a_dry_run_needs_no_systemd(service: Any, systemd: Systemd):
    (systemd.notes / "no-bus").touch()

    done = service("install", "--dry-run")

    assert (done.returncode, done.stderr) == (0, "")
    assert f"would write {systemd.units}/icd.service\n" in done.stdout
    assert not systemd.units.exists()


def test_a_running_daemon_leaves_it_to_the_client(systemd: Systemd, tmp_path: Path, daemon: Daemon):
    env = {**systemd.env, "INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}

    done = icctl("service", "install", "--dry-run", cwd=tmp_path, env=env)

    assert done.returncode == 0
    assert f"would write {systemd.units}/icd.socket\n".encode() in done.stdout
