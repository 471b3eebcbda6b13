"""Hooks of events that were recorded without a daemon: they run before the client exits."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from icctl import direct_hooks
from icd import files
from tests.support.processes import Daemon, icctl, until

NOTE = """#!/bin/sh
read -r event
echo "$event" >>"$INTERCORE_PROJECT/had"
"""
RECORD = ("events", "record", "--source=deploy", "--type=done")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    return found


@pytest.fixture
def run(initialized: Path, home: Path):
    """Run a command without a daemon, in a project with a database."""

    def run(*arguments: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
        world = {"HOME": str(home), "INTERCORE_MODE": "direct", **env}
        done = icctl(*arguments, cwd=initialized, env=world)
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""
        return done

    return run


@pytest.fixture
def hook(initialized: Path, run):
    def hook(script: str = NOTE, name: str = "on-event") -> Path:
        path = initialized / ".clavain" / "hooks" / name
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
        run("hooks", "trust", name)
        return path

    return hook


def had(project: Path) -> list[dict]:
    path = project / "had"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_hook_has_run_when_the_client_exits_with_the_line_of_tail(run, hook, initialized):
    hook()

    done = run(*RECORD, '--payload={"a": "<\\u00fc>",\n "b": [1]}')

    assert done.stdout == b"1\n"
    assert (initialized / "had").read_bytes() == run("events", "tail", "--all").stdout


def test_no_hook_runs_that_nobody_trusts(run, hook, initialized):
    hook().write_text(f"{NOTE}true\n")

    run(*RECORD)

    assert had(initialized) == []


def test_commands_that_record_nothing_run_no_hooks(run, hook, initialized):
    hook()
    run(*RECORD, INTERCORE_HOOK="on-event")  # as if a hook had recorded it
    assert had(initialized) == []

    run("state", "set", "k", "s", "--value=1")
    run("events", "tail", "--all")

    assert had(initialized) == []


def test_what_was_not_delivered_goes_to_the_hook_with_the_next_event(run, hook, initialized):
    hook()
    run(*RECORD, INTERCORE_HOOK="on-event")

    run(*RECORD)

    assert [event["seq"] for event in had(initialized)] == [1, 2]


def test_a_failure_is_an_event_and_fails_no_call(run, hook):
    hook("#!/bin/sh\necho broken\nexit 3\n")

    done = run(*RECORD)

    assert done.stdout == b"1\n"
    failure = json.loads(run("events", "tail", "--all", "--source=hook").stdout)
    assert failure["reason"] == "on-event exited with 3"
    assert failure["payload"] == {"hook": "on-event", "seq": 1, "status": 3}


def test_what_hooks_say_is_in_a_log_that_does_not_grow_for_ever(run, hook, home, initialized):
    hook("#!/bin/sh\necho hello\n")
    log = home / direct_hooks.LOG
    run(*RECORD)
    first = log.read_text()
    log.write_bytes(b"x" * files.LOG_BYTES)

    run(*RECORD)
    run(*RECORD)

    assert first.endswith(f" {initialized}: on-event ran, event 1\nhello\n")
    assert log.with_name("hooks.log.1").stat().st_size > files.LOG_BYTES
    assert log.read_text().endswith("on-event ran, event 3\nhello\n")
    assert log.stat().st_size < 200
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_hook_that_hangs_is_killed_and_the_client_has_said_its_answer(
    run, hook, home, initialized
):
    settings = home / ".config" / "intercore" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("hook_seconds = 0.5\n")
    hook("#!/bin/sh\nsleep 1000\n")

    done = run(*RECORD)

    assert done.stdout == b"1\n"
    failure = json.loads(run("events", "tail", "--all", "--source=hook").stdout)
    assert failure["reason"] == "on-event took longer than 0.5 s, and was killed"


def test_a_hook_that_records_events_does_not_nest(run, hook, initialized):
    """Whoever runs it delivers them, one after the other."""
    script = NOTE + 'case "$event" in *first*) icctl events record --source=x --type=second;; esac'
    hook(f"{script}\n")

    run("events", "record", "--source=x", "--type=first")

    assert [event["type"] for event in had(initialized)] == ["first", "second"]


def test_a_client_that_is_killed_in_a_hook_leaves_it_to_the_next_and_it_is_marked(
    run, hook, home, initialized
):
    hook(f"{NOTE}[ -e fine ] || kill -9 $PPID\n")
    world = {"HOME": str(home), "INTERCORE_MODE": "direct"}
    killed = icctl(*RECORD, cwd=initialized, env=world)
    assert killed.returncode == -9
    (initialized / "fine").touch()

    run(*RECORD)

    assert [(e["seq"], e.get("redelivery")) for e in had(initialized)] == [
        (1, None),
        (1, True),
        (2, None),
    ]


def test_clients_at_once_deliver_every_event_once_in_order(run, hook, initialized):
    hook()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: run(*RECORD), range(24)))

    assert [event["seq"] for event in had(initialized)] == list(range(1, 25))
    assert not any("redelivery" in event for event in had(initialized))


def test_a_daemon_and_clients_without_it_never_deliver_the_same(hook, run, home, initialized):
    daemon = Daemon(env={"HOME": str(home)})
    try:
        daemon.start()
        hook()

        for _ in range(10):
            daemon.call("events.record", source="x", type="t", cwd=str(initialized))
            run(*RECORD)

        until(lambda: len(had(initialized)) == 20)
        assert [event["seq"] for event in had(initialized)] == list(range(1, 21))
    finally:
        daemon.close()


def test_without_hooks_nothing_of_theirs_is_loaded(run, initialized):
    code = (
        "import sys; sys.argv = ['icctl']; from icctl import client\n"
        f"status = client.main({[*RECORD]!r}, 'icctl')\n"
        "print({'icctl.direct_hooks', 'icd.features.triggers.process', 'subprocess'} & sys.modules.keys())"
    )
    env = {"HOME": str(initialized), "INTERCORE_MODE": "direct", "PATH": os.environ["PATH"]}

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=initialized, env=env, capture_output=True, check=True
    )

    assert done.stdout.splitlines()[-1] == b"set()"
