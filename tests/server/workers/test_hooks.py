"""Hooks after the commit, with real daemons and real hooks."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from icd.features.triggers.files import Trust
from icd.server import limits
from tests.support.processes import PATIENCE, Daemon, icctl, read_line, until
from tests.support.sizes import size

# Appends in one write, so that lines never mix.
NOTE = """#!/bin/sh
read -r event
echo "$event" >>"$INTERCORE_PROJECT/had-$INTERCORE_HOOK"
"""


EVENTS = size(1000, 200)
WAIT = "until [ -e open ]; do sleep 0.01; done\n"


class Project:
    """A project with a database and hooks, seen by a user whose home is that of the daemon."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self.env = {"HOME": str(home), "INTERCORE_MODE": "direct"}
        self.hooks = path / ".clavain" / "hooks"
        self.hooks.mkdir(mode=0o755)

    def hook(self, name: str, script: str = NOTE, *, trusted: bool = True) -> Path:
        path = self.hooks / name
        path.write_text(script)
        path.chmod(0o755)
        if trusted:
            self.run("hooks", "trust", name)
        return path

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> bytes:
        done = icctl(*arguments, cwd=self.path, env={**self.env, **(env or {})})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def had(self, name: str = "on-event") -> list[dict[str, Any]]:
        path = self.path / f"had-{name}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def seqs(self, name: str = "on-event", *, again: bool = True) -> list[int]:
        return [event["seq"] for event in self.had(name) if again or "redelivery" not in event]


@pytest.fixture
def project(project: Path, daemon: Daemon, initialize: Callable[[Path, Path], None]) -> Project:
    initialize(project, daemon.home)
    return Project(project, daemon.home)


@pytest.fixture
def record(project: Project, daemon: Daemon) -> Callable[..., int]:
    def record(source: str = "phase", type: str = "advance", **params: Any) -> int:  # noqa: A002
        facts = {"source": source, "type": type, "cwd": str(project.path), **params}
        seq: int = daemon.call("events.record", **facts)["seq"]
        return seq

    return record


def failures(daemon: Daemon, project: Project) -> list[dict[str, Any]]:
    params = {"source": "hook", "limit": 10_000, "cwd": str(project.path)}
    found: list[dict[str, Any]] = daemon.call("events.tail", **params)["events"]
    return found


def report(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.call("icd.status")["hooks"]
    return found


def logged(daemon: Daemon, message: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line[:1] == "{"]
    return [line for line in lines if line["msg"] == message]


def test_a_hook_gets_the_event_as_tail_shows_it(project, daemon, record):
    project.hook("on-event")

    seq = record(run_id="r1", from_state="a", to_state="b", payload={"deep": [1, {"x": "ü"}]})

    until(lambda: project.seqs() == [seq])
    (shown,) = daemon.call("events.tail", cwd=str(project.path))["events"]
    (had,) = project.had()
    assert had == shown
    assert list(had) == list(shown)


def test_each_source_has_its_hook(project, record):
    for name in ("on-phase-advance", "on-dispatch-change", "on-discovery", "on-event"):
        project.hook(name)

    for source in ("phase", "dispatch", "discovery", "review2"):
        record(source)

    until(lambda: project.seqs() == [1, 2, 3, 4])
    assert project.seqs("on-phase-advance") == [1]
    assert project.seqs("on-dispatch-change") == [2]
    assert project.seqs("on-discovery") == [3]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_of_many_events_each_hook_gets_all_with_complete_json(project, daemon, record):
    project.hook("on-phase-advance")
    project.hook("on-event")
    text = "x" * 500

    request = {"jsonrpc": "2.0", "id": 1, "method": "events.record"}
    params = {"source": "phase", "type": "t", "cwd": str(project.path)}
    with daemon.connect() as sock:
        for number in range(EVENTS):
            payload = {"number": number, "text": text}
            line = {**request, "params": {**params, "payload": payload}}
            sock.sendall(json.dumps(line).encode() + b"\n")
            assert b'"result"' in read_line(sock)

    until(lambda: report(daemon)["delivered"] == 2 * EVENTS, patience=300)
    for name in ("on-phase-advance", "on-event"):
        had = project.had(name)
        assert [event["seq"] for event in had] == list(range(1, EVENTS + 1))
        assert [event["payload"]["number"] for event in had] == list(range(EVENTS))
        assert all(event["payload"]["text"] == text for event in had)
        assert not any("redelivery" in event for event in had)
    assert report(daemon)["failed"] == 0


def test_a_hook_starts_with_the_next_event_after_it_was_trusted(project, record):
    record()
    project.hook("on-event")

    seq = record()

    until(lambda: project.seqs() == [seq])


def test_a_hook_that_nobody_trusts_does_not_run(project, record):
    project.hook("on-event", trusted=False)
    project.hook("on-phase-advance")

    record()

    until(lambda: project.seqs("on-phase-advance") == [1])
    assert project.had() == []


def test_a_hook_that_changed_does_not_run_until_it_is_trusted_again(project, record):
    project.hook("on-event")
    project.hook("on-phase-advance")
    project.hook("on-event", NOTE + "true\n", trusted=False)
    record()
    until(lambda: project.seqs("on-phase-advance") == [1])
    assert project.had() == []

    project.run("hooks", "trust")
    record()

    until(lambda: project.seqs("on-event") == [2])
    until(lambda: project.seqs("on-phase-advance") == [1, 2])


def changed(project: Project) -> None:
    (project.hooks / "on-event").write_text(NOTE + "true\n")


def open_to_all(project: Project) -> None:
    (project.hooks / "on-event").chmod(0o777)


def gone(project: Project) -> None:
    (project.hooks / "on-event").unlink()


def until_at_rest(project: Project) -> None:
    """The daemon holds the lock until there is nothing more to deliver."""
    trust = Trust(project.env["HOME"], str(project.path))
    trust.acquire(time.monotonic() + PATIENCE)
    trust.release()


@pytest.mark.parametrize("spoil", [changed, open_to_all, gone])
def test_a_hook_that_is_good_again_gets_what_it_missed_without_another_event(
    project, record, spoil
):
    project.hook("on-event")
    project.hook("on-phase-advance")
    record()
    until(lambda: project.seqs() == [1])
    spoil(project)
    record()
    record()
    until(lambda: project.seqs("on-phase-advance") == [1, 2, 3])
    until_at_rest(project)

    project.hook("on-event", trusted=False)

    until(lambda: project.seqs() == [1, 2, 3])
    assert not any(event.get("redelivery") for event in project.had())


def test_a_hook_that_is_spoiled_while_it_runs_gets_the_rest_when_it_is_good_again(project, record):
    slow = f"{NOTE}{WAIT}"
    project.hook("on-event", slow)
    project.hook("on-phase-advance")
    record()
    record()
    until(lambda: project.seqs() == [1])
    changed(project)
    (project.path / "open").touch()
    until(lambda: project.seqs("on-phase-advance") == [1, 2])
    until_at_rest(project)

    project.hook("on-event", slow, trusted=False)

    until(lambda: project.seqs() == [1, 2])


def test_a_link_in_the_place_of_a_hook_does_not_run(project, record):
    hook = project.hook("on-event")
    project.hook("on-phase-advance")
    hook.rename(project.path / "moved")
    hook.symlink_to(project.path / "moved")

    record()

    until(lambda: project.seqs("on-phase-advance") == [1])
    assert project.had() == []


def test_a_hook_that_its_group_can_write_to_does_not_run(project, record):
    project.hook("on-event").chmod(0o775)
    project.hook("on-phase-advance")

    record()

    until(lambda: project.seqs("on-phase-advance") == [1])
    assert project.had() == []


def test_a_project_that_brings_its_own_positions_is_not_trusted(project, daemon, record, tmp_path):
    project.hook("on-event")
    clone = tmp_path / "clone"
    subprocess.run(["cp", "-a", project.path, clone], check=True)

    daemon.call("events.record", source="phase", type="t", cwd=str(clone))
    record()

    until(lambda: project.seqs() == [1])
    assert not (clone / "had-on-event").exists()


def test_a_hook_that_fails_is_an_event_and_is_told(project, daemon, record):
    project.hook("on-event", "#!/bin/sh\necho it broke >&2\nexit 3\n")

    record(run_id="r1")

    until(lambda: report(daemon)["failed"] == 1)
    until(lambda: failures(daemon, project))
    (event,) = failures(daemon, project)
    assert (event["type"], event["run_id"], event["subject_id"]) == ("failed", "r1", "on-event")
    assert event["reason"] == "on-event exited with 3"
    assert event["payload"] == {"hook": "on-event", "seq": 1, "status": 3}
    assert report(daemon)["last_error"].endswith(": on-event exited with 3")
    (line,) = logged(daemon, "hook failed")
    assert (line["hook"], line["seq"], line["output"]) == ("on-event", 1, "it broke\n")


def test_what_a_hook_says_is_in_the_log(project, daemon, record):
    project.hook("on-event", "#!/bin/sh\necho hello\n")

    record()

    until(lambda: logged(daemon, "hook said"))
    (line,) = logged(daemon, "hook said")
    assert (line["hook"], line["output"], line["level"]) == ("on-event", "hello\n", "info")


def test_a_hook_has_a_persons_environment_and_nothing_of_the_daemons(project, tmp_path, record):
    project.hook("on-event", '#!/bin/sh\npwd >"$INTERCORE_PROJECT/env"\nenv >>env\n')

    seq = record(run_id="r1")

    until(lambda: project.path.joinpath("env").exists() and record_is_whole(project))
    first, *lines = (project.path / "env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert first == str(project.path)
    for name in ("_", "PWD", "SHLVL", "OLDPWD"):  # the shell's own
        found.pop(name, None)
    assert found == {
        "PATH": found["PATH"],
        "HOME": project.env["HOME"],
        "LANG": "C.UTF-8",
        "INTERCORE_SOCKET": f"{project.env['HOME']}/icd.sock",
        "INTERCORE_HOOK": "on-event",
        "INTERCORE_PROJECT": str(project.path),
        "INTERCORE_DB": str(project.path / ".clavain" / "intercore.db"),
        "INTERCORE_EVENT_SEQ": str(seq),
        "INTERCORE_EVENT_SOURCE": "phase",
        "INTERCORE_EVENT_TYPE": "advance",
        "INTERCORE_EVENT_RUN": "r1",
    }


def record_is_whole(project: Project) -> bool:
    return "INTERCORE_EVENT_RUN" in (project.path / "env").read_text()


@pytest.fixture
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """With an environment that is its own business, and little patience with hooks."""
    secrets = {
        "GITHUB_TOKEN": "secret",
        "WATCHDOG_PID": "1",
        "INTERCORE_IDLE_SECONDS": "0.2",
        "LD_LIBRARY_PATH": "/nowhere",
    }
    found = Daemon(env=secrets)
    settings = found.home / ".config" / "intercore" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"hook_seconds = {getattr(request, 'param', 20)}\n")
    try:
        yield found.start()
    finally:
        found.close()
        _end_hooks(found.home)


def _end_hooks(home: Path) -> None:
    """What a daemon that was killed has left behind."""
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(home) in cmdline.read_bytes():
                os.killpg(int(cmdline.parent.name), signal.SIGKILL)


@pytest.mark.parametrize("daemon", [3], indirect=True)
def test_a_hook_that_hangs_is_killed_and_the_next_event_is_delivered(project, daemon, record):
    hang = '#!/bin/sh\nread -r event\ncase "$event" in *hang*) sleep 1000 & wait;; esac\n'
    project.hook("on-event", hang + 'echo "$event" >>had-on-event\n')

    record(type="hang")
    record(type="fine")

    until(lambda: project.seqs() == [2])
    (event,) = failures(daemon, project)
    assert event["reason"] == "on-event took longer than 3 s, and was killed"
    assert event["payload"]["seq"] == 1


def test_hooks_that_fork_or_flood_hold_up_nobody(project, daemon, record):
    project.hook("on-phase-advance", "#!/bin/sh\nsleep 1000 &\n")
    project.hook("on-dispatch-change", "#!/bin/sh\nexec yes\n")
    project.hook("on-event")

    record("phase")
    record("dispatch")
    record("review2")

    until(lambda: project.seqs() == [1, 2, 3])
    (event,) = failures(daemon, project)
    assert event["reason"] == "on-dispatch-change was killed by SIGPIPE"
    assert daemon.log.stat().st_size < 100_000


def test_a_call_does_not_wait_for_a_hook(project, daemon, record):
    project.hook("on-event", f"#!/bin/sh\n{WAIT}{NOTE[10:]}")

    for _ in range(3):
        record()
    assert project.had() == []
    (project.path / "open").touch()

    until(lambda: project.seqs() == [1, 2, 3])


def test_a_hook_may_call_the_daemon_that_runs_it(project, daemon, record):
    script = "#!/bin/sh\nicctl state set seen here --value=1 && icctl state get seen here >answer\n"
    project.hook("on-phase-advance", script)

    record()

    answer = project.path / "answer"
    until(lambda: answer.exists() and answer.read_text() == "1\n")


def test_the_failure_of_a_hook_does_not_run_it_again(project, daemon, record):
    project.hook("on-event", f"{NOTE}exit 1\n")

    record()
    until(lambda: failures(daemon, project))
    record()

    until(lambda: report(daemon)["delivered"] == 2)
    until(lambda: len(failures(daemon, project)) == 2)
    assert len(project.had()) == 2


@pytest.mark.parametrize("daemon", [30], indirect=True)
def test_when_the_daemon_is_killed_every_event_is_delivered_and_only_repeats_are_marked(
    project, daemon, record
):
    """Some of them in the middle of a hook."""
    project.hook("on-event", NOTE + "sleep 0.02\n")
    last = 0

    for round_ in range(4):
        for _ in range(10):
            last = record()
        target = 5 + 10 * round_
        until(lambda target=target: len(project.had()) > target)
        daemon.kill()
        daemon.start()
        record()
    last = record()

    until(lambda: last in project.seqs())
    had = project.had()
    fresh = [event["seq"] for event in had if "redelivery" not in event]
    again = [event["seq"] for event in had if "redelivery" in event]
    assert sorted({*fresh, *again}) == list(range(1, last + 1))
    assert len(fresh) == len(set(fresh))
    assert len(again) <= 4
    assert [event["seq"] for event in had] == sorted(event["seq"] for event in had)


def test_a_redelivery_is_marked_in_the_environment_too(project, daemon, record):
    script = f'{NOTE}echo "again: $INTERCORE_REDELIVERY" >>marks\n[ -e fine ] || sleep 1000\n'
    project.hook("on-event", script)
    record()
    marks = project.path / "marks"
    until(lambda: marks.exists() and marks.read_text() == "again: \n")
    daemon.kill()
    (project.path / "fine").touch()

    daemon.start()
    record()

    until(lambda: marks.read_text() == "again: \nagain: 1\nagain: \n")
    assert [event.get("redelivery") for event in project.had()] == [None, True, None]


def test_a_daemon_that_stops_lets_the_hook_finish_and_leaves_the_rest_to_the_next(
    project, daemon, record
):
    project.hook("on-event", f"#!/bin/sh\n: >began\n{WAIT}{NOTE[10:]}")
    for _ in range(3):
        record()
    until((project.path / "began").exists)

    with ThreadPoolExecutor() as pool:
        stopping = pool.submit(daemon.stop)
        until(lambda: logged(daemon, "stopping"))
        (project.path / "open").touch()
        assert stopping.result() == 0
    assert project.seqs() == [1]

    daemon.start()
    record()
    until(lambda: project.seqs() == [1, 2, 3, 4])
    assert not any("redelivery" in event for event in project.had())


def test_a_reload_waits_for_the_hook_that_runs_and_nothing_is_delivered_twice(
    project, daemon, record
):
    project.hook("on-event", f"{NOTE}sleep 0.05\n")
    for _ in range(10):
        record()
    until(project.had)

    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: len(logged(daemon, "listening")) == 2)
    last = record()

    until(lambda: last in project.seqs())
    assert project.seqs() == list(range(1, last + 1))
    assert not any("redelivery" in event for event in project.had())


def test_what_a_reload_leaves_is_delivered_although_nobody_calls(project, daemon, record):
    project.hook("on-event", f"{NOTE}sleep 0.1\n")
    for _ in range(30):
        record()
    until(project.had)

    daemon.process.send_signal(signal.SIGHUP)

    until(lambda: len(logged(daemon, "listening")) == 2)
    until(lambda: project.seqs() == list(range(1, 31)))
    assert not any("redelivery" in event for event in project.had())


def test_a_hook_that_outlives_a_restore_skips_nothing_of_the_restored_log(project, daemon, record):
    waits = f'[ "$INTERCORE_EVENT_SEQ" = 3 ] && {{ : >began; {WAIT}}}\n'
    project.hook("on-event", f"#!/bin/sh\n{waits}{NOTE[10:]}")
    record()
    until(lambda: project.seqs() == [1])
    project.run("backup", "earlier.db")
    record()
    record()
    until((project.path / "began").exists)

    project.run("restore", "earlier.db")
    (project.path / "open").touch()
    until(lambda: project.seqs(again=False) == [1, 2, 3])
    until(lambda: daemon.call("icd.status")["hooks"]["delivered"] >= 3)
    record()
    record()

    # The backup may be older than the note that the first was delivered: then it comes again.
    until(lambda: project.seqs(again=False) == [1, 2, 3, 2, 3])


def test_hooks_of_several_projects_run_at_once_each_in_its_order(daemon, tmp_path, initialize):
    found = []
    for name in ("a", "b", "c"):
        path = tmp_path / name
        (path / ".git").mkdir(parents=True)
        initialize(path, daemon.home)
        found.append(Project(path, daemon.home))
    found[0].hook("on-event", f"#!/bin/sh\n{WAIT}")
    for each in found[1:]:
        each.hook("on-event")

    for _ in range(5):
        for each in found:
            daemon.call("events.record", source="phase", type="t", cwd=str(each.path))

    for each in found[1:]:
        until(lambda each=each: each.seqs() == [1, 2, 3, 4, 5])


def test_events_that_writers_record_at_once_are_delivered_in_their_order(project, daemon, record):
    project.hook("on-event")

    threads = [threading.Thread(target=lambda: [record() for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    until(lambda: project.seqs() == list(range(1, 41)))


def test_of_all_projects_together_a_few_hooks_run_at_once(daemon, tmp_path, initialize):
    running = tmp_path / "running"
    running.mkdir()
    count = f"""#!/bin/sh
mkdir {running}/$$
ls {running} | wc -l >>{tmp_path}/counts
sleep 0.3
rmdir {running}/$$
"""
    for number in range(limits.HOOKS_AT_ONCE + 3):
        path = tmp_path / str(number)
        (path / ".git").mkdir(parents=True)
        initialize(path, daemon.home)
        Project(path, daemon.home).hook("on-event", count)

    for number in range(limits.HOOKS_AT_ONCE + 3):
        for _ in range(2):
            daemon.call("events.record", source="x", type="t", cwd=str(tmp_path / str(number)))

    until(lambda: report(daemon)["delivered"] == 2 * (limits.HOOKS_AT_ONCE + 3))
    counts = [int(line) for line in (tmp_path / "counts").read_text().split()]
    assert len(counts) == 2 * (limits.HOOKS_AT_ONCE + 3)
    assert 1 < max(counts) <= limits.HOOKS_AT_ONCE


@pytest.mark.parametrize("daemon", [60], indirect=True)
def test_a_hook_that_takes_longer_than_a_daemon_that_stops_is_killed_and_runs_again(
    project, daemon, record
):
    script = f"{NOTE}[ -e fine ] || sleep 1000 &\nwait\n"
    project.hook("on-event", script)
    record()
    until(project.had)

    assert daemon.stop() == 0
    (project.path / "fine").touch()
    daemon.start()
    record()

    until(lambda: project.seqs() == [1, 1, 2])
    assert [event.get("redelivery") for event in project.had()] == [None, True, None]
    assert failures(daemon, project) == []
