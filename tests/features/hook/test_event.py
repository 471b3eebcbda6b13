"""What is read of an event: by Python, and by the native client, which must agree."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from icd.features.hook import event
from icd.features.hook.event import Event
from tests.support.processes import CLEAN, DOORS

RECORDED = Path(__file__).parents[2] / "data" / "events"
SHAPES = json.loads((RECORDED / "shapes.json").read_text())
NATIVE = DOORS / "native" / "icctl"
SHOW = 'for n in SESSION EVENT TOOL FILE CWD AGENT STOP_ACTIVE; do eval "printf \'%s\\0\' \\"\\$INTERCORE_$n\\""; done'


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s['agent']}-{s['told']['event']}")
def test_the_events_of_every_agent_are_understood(shape):
    found = event.read(json.dumps(shape["sent"]).encode())

    assert found == Event(agent=shape["agent"], **shape["told"])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s['agent']}-{s['told']['event']}")
def test_a_command_gets_the_event_and_its_fields(shape, door, tmp_path):
    sent = json.dumps(shape["sent"], indent=1).encode()

    done = subprocess.run(
        [door / "icctl", "hook", "--", "sh", "-c", f"{SHOW}; cat"],
        input=sent, capture_output=True, check=True, cwd=tmp_path, env=CLEAN,
    )  # fmt: skip

    *fields, rest = done.stdout.decode().split("\0")
    told = Event(agent=shape["agent"], **shape["told"])
    assert fields == [*told.environment().values()]
    assert rest.encode() == sent
    assert done.stderr == b""


def test_what_agents_sent_is_understood():
    for file in RECORDED.glob("*/*.json"):
        sent = json.loads(file.read_text("utf-8"))

        found = event.read(file.read_bytes())

        assert found is not None
        assert found.agent == file.parent.name, file
        assert found.session == sent.get("session_id", sent.get("conversation_id")), file
        assert found.event == sent.get("hook_event_name", ""), file
        assert (found.cwd, found.tool) == ("/home/me/project", sent.get("tool_name", "")), file


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", b"[]", b'"s"', b"null", b'{"session_id":"s"', b'{"session_id":"s"} x',
        b'{"session_id":"s",}', b'{"session_id":"s" "cwd":"/"}', b'{"session_id":01}',
        b'{"session_id":NaN}', b'{"session_id":"\xff"}', b'{"session_id":"a\nb"}', b"\xef\xbb\xbf{}",
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
)  # fmt: skip
def test_what_is_no_event_is_none(data):
    assert event.read(data) is None


@pytest.mark.parametrize(
    ("session", "read"),
    [
        ('"a\\u0000b"', ""),
        ('"\\ud800"', ""),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"' + "x" * 70_000 + '"', ""),
        ("7", ""),
        ('"one", "session_id": "two"', "two"),
        ('"a\\/\\"\\\\\\n"', 'a/"\\\n'),
    ],
)
def test_a_field_is_text_that_an_environment_can_hold(session, read):
    found = event.read(f'{{"session_id": {session}}}'.encode())

    assert found is not None
    assert found.session == read


# --- the same, natively -----------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("session_id", "conversation_id", "cwd", "workspace_roots", "hook_event_name"),
        *("tool_name", "tool_input", "file_path", "path", "notebook_path", "stop_hook_active"),
        *("transcript_path", "turn_id", "timestamp", "cursor_version", "é", ""),
    ]
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8), st.sampled_from(["/rollout-", "a\0b", "\ud800", "\udc00x", "😀", "/p"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)
EVENTS = st.dictionaries(WORDS, VALUES, max_size=8).map(lambda found: json.dumps(found).encode())


@st.composite
def almost(draw):
    """An event, with a byte that is another one, or missing."""
    data = bytearray(draw(EVENTS))
    at = draw(st.integers(0, len(data) - 1))
    data[at : at + 1] = draw(
        st.sampled_from([b"", b",", b'"', b"}", b"\\", b"\xff", b"0", b"\xc3"])
    )
    return bytes(data)


@pytest.mark.skipif(not NATIVE.exists(), reason="no C compiler: the native client was not built")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=EVENTS | almost())
@example(data=b'{"a":' * 256 + b"1" + b"}" * 256)
@example(data=b'{"a":' * 257 + b"1" + b"}" * 257)
@example(data=b'{"cwd":"\\ud83d\\u0041","workspace_roots":["/w"]}')
@example(data=b'{"tool_input":{"path":"a"},"tool_input":{"file_path":"","notebook_path":"n"}}')
@example(
    data=b'{"tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\\n'
    b'*** Update File: a b.py\\n*** Add File: c\\n"},"file_path":"z"}'
)
@example(data=b'{"tool_name":"apply_patch","tool_input":{"command":"x *** Add File: c"}}')
@example(
    data=b'{"tool_name":"apply_patch","tool_input":{"command":"*** Delete File: \\u00e9'
    + b" " * 70_000
    + b'"}}'
)
@example(data=b'{"session_id":1e999,"cwd":-0.0E+1,"tool_name":"\\u00e9\\u20ac"}')
def test_the_native_client_reads_what_python_reads(data, tmp_path):
    done = subprocess.run(
        [NATIVE, "hook", "--", "sh", "-c", SHOW],
        input=data, capture_output=True, check=True, cwd=tmp_path, env=CLEAN,
    )  # fmt: skip

    told = (event.read(data) or Event()).environment().values()
    assert done.stdout == b"".join(value.encode() + b"\0" for value in told)


@pytest.mark.long
def test_fuzzing_finds_no_event_that_breaks_the_native_client(tmp_path):
    fuzz = DOORS / "fuzz-event"
    if not fuzz.exists():
        pytest.skip("no clang: the fuzz target was not built; install Debian's clang")
    for number, shape in enumerate(SHAPES):
        (tmp_path / str(number)).write_text(json.dumps(shape["sent"]))

    done = subprocess.run(
        [fuzz, "-runs=50000", "-max_len=2048", "-timeout=10", tmp_path],
        cwd=tmp_path, capture_output=True, timeout=200, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
