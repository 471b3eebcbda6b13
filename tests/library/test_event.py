"""`intercore_event`: what an agent sends to its hook becomes variables, and nothing else."""

import json
import os
import pty
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.bash import BASHES, LIBRARY

NAMES = ("SESSION", "EVENT", "TOOL", "FILE", "CWD", "AGENT", "EVENT_JSON")
SHOW = "".join(f"printf '%s\\0' \"$INTERCORE_{name}\";" for name in NAMES)
ENV = {"PATH": os.defpath, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
EVENT = {
    "session_id": "s-1",
    "transcript_path": "/home/me/.claude/projects/x.jsonl",
    "cwd": "/p",
    "hook_event_name": "PreToolUse",
    "tool_name": "Edit",
    "tool_input": {"file_path": "/p/a.py", "old_string": "x"},
}


def run(bash, sent, script=f"intercore_event; {SHOW}", before="set -euo pipefail", env=None):
    ran = subprocess.run(
        [bash, "-c", f"{before}\nsource {LIBRARY}\n{script}"],
        input=sent if isinstance(sent, bytes) else json.dumps(sent).encode(),
        env=ENV | (env or {}), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout


def told(bash, sent, **more):
    found = run(bash, sent, **more).decode().split("\0")[:-1]
    return dict(zip(NAMES, found, strict=True))


@pytest.fixture(params=BASHES)
def bash(request):
    return str(request.param)


def test_an_event_sets_the_variables(bash):
    sent = json.dumps(EVENT)

    assert told(bash, sent.encode()) == {
        "SESSION": "s-1",
        "EVENT": "PreToolUse",
        "TOOL": "Edit",
        "FILE": "/p/a.py",
        "CWD": "/p",
        "AGENT": "claude",
        "EVENT_JSON": sent,
    }


@pytest.mark.parametrize(
    "sent",
    [
        {"tool_input": {"session_id": "no"}},
        {"tool_input": [{"session_id": "no"}]},
        {"session_id": {"session_id": "no"}},
        {"session_id": ["no"]},
        {"session_id": 5, "x": "no"},
        {"session_id": None, "x": "no"},
        {"prompt": '"session_id": "no"'},
        {"prompt": '\\", "session_id": "no", "x": "'},
        {"prompt": "\\" * 5000 + '", "session_id": "no", "x": "'},
        {"prompt": ["session_id", "no"]},
        {"session_id": "a\0b"},
        {"session_id": "x" * 5000},
        [{"session_id": "no"}],
        "session_id",
        b'{"session_id": "a\\q"}',
        b'{"session_id": "a\\u12"}',
        b'{"session_id": "no',
        b'no {"session_id": "no"}',
        b"",
        b" \n",
        b"\0\0",
        b"{" * 5000 + b'"session_id": "no"',
    ],
)
def test_what_is_not_the_events_own_session_is_none(sent):
    assert told("bash", sent)["SESSION"] == ""


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40), st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_text_arrives_as_it_was_sent(text, ascii_only):
    sent = {"x": text, "session_id": text, "tool_input": {text + "k": text, "file_path": text}}
    found = told("bash", json.dumps(sent, ensure_ascii=ascii_only).encode())

    assert (found["SESSION"], found["FILE"]) == (text, text)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_escapes_are_those_of_json_in_every_locale(bash, locale):
    sent = rb'{"session_id": "\u00e9\u20AC\ud83d\ude00\ud83d.\ude00\"\\\/\b\f\n\r\t\u007f"}'

    found = run(bash, sent, f"intercore_event; {SHOW}", env={"LC_ALL": locale})

    text = 'é€😀\ufffd.\ufffd"\\/\b\f\n\r\t\x7f'
    assert found.split(b"\0")[0].decode() == text


@pytest.mark.parametrize(
    "hostile", ["$(touch pwned)", "`touch pwned`", "%s%n", "*", "a[$(touch pwned)]", "-n"]
)
def test_nothing_of_an_event_is_evaluated(bash, tmp_path, hostile):
    sent = {"session_id": hostile, "hook_event_name": hostile, hostile: hostile,
            "tool_input": {"file_path": hostile}}  # fmt: skip

    found = told(bash, sent, before=f"set -eu; cd {tmp_path}; touch x y")

    assert [found[name] for name in ("SESSION", "EVENT", "FILE")] == [hostile] * 3
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_stdin_is_read_once_and_to_its_end(bash):
    long = {**EVENT, "tool_response": "x" * 3_000_000}

    found = run(bash, long, f"intercore_event; intercore_event; {SHOW} cat")

    session, *_others, whole, rest = found.split(b"\0")
    assert (session, whole, rest) == (b"s-1", b"", b"")


@pytest.mark.parametrize(
    ("env", "session"),
    [
        ({"INTERCORE_SESSION": "i", "CLAUDE_SESSION_ID": "c"}, "i"),
        ({"INTERCORE_SESSION": "", "CLAUDE_SESSION_ID": "c", "CODEX_THREAD_ID": "x"}, "c"),
        ({"CLAUDE_CODE_SESSION_ID": "c", "CODEX_THREAD_ID": "x"}, "c"),
        ({"CODEX_THREAD_ID": "x", "GEMINI_SESSION_ID": "g"}, "x"),
        ({"GEMINI_SESSION_ID": "g"}, "g"),
    ],
)
def test_without_an_event_the_session_is_that_of_the_shell(env, session):
    assert told("bash", b"", env=env)["SESSION"] == session
    assert told("bash", EVENT, env=env)["SESSION"] == "s-1"


def test_a_conversation_is_a_session_and_a_root_a_directory(bash):
    found = told(bash, {"conversation_id": "c", "workspace_roots": ["/a", "/b"]})

    assert (found["SESSION"], found["CWD"], found["AGENT"]) == ("c", "/a", "cursor")


@pytest.mark.parametrize(
    "before",
    [
        "set -a",
        "set -f; IFS=s; shopt -s nullglob failglob nocasematch",
        "set -o posix",
        "readonly INTERCORE_TOOL=mine",
        "INTERCORE_FILE=old; export INTERCORE_FILE",
        "exec 3<&0 0<&-; exec 0<&3",
    ],
)
def test_the_shells_own_ways_do_not_matter(bash, before):
    found = told(bash, EVENT, before=f"{before}\nset -u")

    assert (found["SESSION"], found["FILE"]) == ("s-1", "/p/a.py")
    assert found["TOOL"] == ("mine" if "readonly" in before else "Edit")


def test_a_long_event_keeps_no_program_from_starting(bash):
    sent = {**EVENT, "tool_response": "x" * 500_000}

    assert (
        run(bash, sent, "intercore_event; env true; echo $INTERCORE_SESSION", "set -ea") == b"s-1\n"
    )


@pytest.mark.parametrize("before", ["exec 0<&-", "exec 0</dev/null"])
def test_a_hook_without_stdin_goes_on(bash, before):
    assert told(bash, b"", before=before)["EVENT"] == ""


def test_at_a_terminal_nothing_is_waited_for(bash):
    ours, its = pty.openpty()
    ran = subprocess.run(
        [bash, "-c", f"source {LIBRARY}; intercore_event; echo went on"],
        stdin=its, env=ENV, capture_output=True, timeout=30, check=True,
    )  # fmt: skip
    os.close(ours)
    os.close(its)

    assert ran.stdout == b"went on\n"


def test_hostile_events_take_seconds_at_most(bash):
    for content in ('"' * 300_000, "\\" * 300_000, ["x"] * 100_000, [[]] * 100_000):
        found = told(bash, {"session_id": "s", "x": content})  # told() has a deadline
        assert found["SESSION"] == "s"
