"""`icctl triggers list`, `triggers trust`, `triggers untrust`."""

import hashlib
import json

import pytest

from icd.app.invocation import Errand
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.triggers import store as hooks
from icd.values.processes import Writer
from tests.conftest import NOW_MS

SCRIPT = b"#!/bin/sh\n"
SHA256 = hashlib.sha256(SCRIPT).hexdigest()


@pytest.fixture
def env(tmp_path):
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def hook(project, database):
    def hook(name, content=SCRIPT, mode=0o755):
        path = project / ".clavain" / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.parent.chmod(0o755)
        path.write_bytes(content)
        path.chmod(mode)
        return path

    return hook


def test_the_hooks_are_listed_with_their_states(stdout, env, hook):
    hook("on-discovery")
    hook("on-event")
    stdout("triggers", "trust", env=env)
    hook("on-discovery", b"#!/bin/sh\nfalse\n")
    hook("on-dispatch-change")
    hook("on-phase-advance", mode=0o775)

    assert stdout("triggers", "list", env=env) == (
        "on-phase-advance\trefused\tit is writable by other users; run chmod go-w\n"
        "on-dispatch-change\tuntrusted\n"
        "on-discovery\tchanged\n"
        "on-event\ttrusted\n"
    )


def test_the_hooks_are_listed_as_json(stdout, env, hook):
    path = hook("on-event")

    assert json.loads(stdout("triggers", "list", "--json", env=env)) == [
        {
            "name": "on-event",
            "state": "untrusted",
            "path": str(path),
            "sha256": SHA256,
            "problem": "",
        }
    ]


def test_no_hooks_are_an_empty_list(stdout, env, database):
    assert stdout("triggers", "list", env=env) == ""
    assert stdout("triggers", "list", "--json", env=env) == "[]\n"


def test_trust_tells_what_is_trusted(stdout, env, hook):
    hook("on-event")
    hook("on-discovery")

    assert stdout("triggers", "trust", "on-event", env=env) == f"on-event\t{SHA256}\n"
    assert json.loads(stdout("triggers", "trust", "--json", env=env)) == [
        {"name": "on-discovery", "sha256": SHA256},
        {"name": "on-event", "sha256": SHA256},
    ]


def record(conn):
    return events.append(conn, Fact("phase", "t"), actor=Writer(), now_ms=NOW_MS)


def test_a_hook_starts_with_the_next_event(stdout, env, hook, conn):
    hook("on-event")
    record(conn)

    stdout("triggers", "trust", env=env)

    assert not hooks.is_pending(conn, ["on-event"])


def test_to_trust_what_is_trusted_takes_nothing_away_from_it(stdout, env, hook, conn):
    hook("on-event")
    stdout("triggers", "trust", env=env)
    record(conn)

    stdout("triggers", "trust", env=env)

    assert hooks.is_pending(conn, ["on-event"])


def test_untrust_tells_what_was_trusted(stdout, ic, env, hook):
    hook("on-event")
    stdout("triggers", "trust", env=env)

    assert stdout("triggers", "untrust", env=env) == "on-event\n"
    assert stdout("triggers", "list", env=env) == "on-event\tuntrusted\n"
    assert ic("triggers", "untrust", env=env).exit == 1
    assert ic("triggers", "untrust", "--json", env=env).stdout == b"[]\n"


def test_a_hook_that_is_gone_can_be_trusted_no_longer(stdout, env, hook):
    path = hook("on-event")
    stdout("triggers", "trust", env=env)
    path.unlink()

    assert stdout("triggers", "untrust", "on-event", env=env) == "on-event\n"


def test_what_cannot_be_trusted_is_told_with_the_reason(ic, env, hook, project):
    hook("on-event", mode=0o644)

    output = ic("triggers", "trust", env=env)

    assert (output.exit, output.stdout) == (2, b"")
    assert (
        output.stderr
        == (
            f"icctl: triggers trust: {project}/.clavain/hooks/on-event cannot be trusted: "
            "it is not executable; run chmod u+x; "
            "a trusted file must be writable only by you\n"
        ).encode()
    )


def test_what_is_not_there_is_told(ic, env, project, database):
    none = ic("triggers", "trust", env=env)
    not_this = ic("triggers", "trust", "on-event", env=env)

    where = f"{project}/.clavain/hooks"
    assert (none.exit, not_this.exit) == (1, 1)
    assert none.stderr.decode() == (
        f"icctl: triggers trust: there is no trigger in {where}; create an executable file there: "
        "on-phase-advance, on-dispatch-change, on-discovery or on-event\n"
    )
    assert not_this.stderr.decode() == (
        f"icctl: triggers trust: there is no trigger on-event in {where}; see 'icctl triggers list'\n"
    )


@pytest.mark.parametrize("verb", ["trust", "untrust"])
def test_a_name_that_no_hook_has_is_a_mistake(ic, env, verb):
    output = ic("triggers", verb, "on-x", env=env)

    assert output.exit == 3
    assert b"'on-x' is not one of 'on-phase-advance', " in output.stderr


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_nothing_is_trusted(ic, hook, home):
    hook("on-event")

    output = ic("triggers", "trust", env=home)

    assert output.exit == 2
    assert output.stderr.endswith(b": trust is recorded in the home directory; set HOME\n")


def test_a_database_elsewhere_has_no_hooks(ic, env, project, database):
    (project / "other.db").touch()

    output = ic("triggers", "list", "--db=other.db", env=env)

    assert output.exit == 1
    assert (
        b"other.db has no triggers; only a database in a .clavain directory has triggers"
        in output.stderr
    )


@pytest.mark.parametrize("verb", ["list", "trust", "untrust"])
def test_hooks_are_the_business_of_the_callers_own_process(invoke, verb):
    assert isinstance(invoke("triggers", verb), Errand)


@pytest.mark.parametrize(
    "words", [["list"], ["list", "--json"], ["trust", "on-x"], ["trust", "--help"], ["--help"], []]
)
def test_hooks_is_another_name_of_triggers(ic, env, hook, words):
    hook("on-event")

    assert ic("hooks", *words, env=env) == ic("triggers", *words, env=env)
