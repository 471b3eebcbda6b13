"""The caller's world: input is asked for, never taken."""

import pytest

from icd.app.invocation import INPUT_BYTES, Need, Needed, World, advice, line
from icd.errors import IcError, UnreadableInput, Usage
from icd.values.payloads import PAYLOAD_BYTES


def world(**known):
    return World(argv=[], cwd="/", deadline=0.0, **known)


def test_stdin_that_was_not_sent_is_asked_for():
    with pytest.raises(Needed) as asked:
        world().read_stdin()

    assert asked.value.need == Need("stdin", "", INPUT_BYTES)


def test_stdin_that_was_sent_is_there_even_if_empty():
    assert world(stdin=b"").read_stdin() == b""


def test_a_file_that_was_not_sent_is_asked_for_by_its_path():
    with pytest.raises(Needed) as asked:
        world(files={"other": b""}).read_file("a/b.json")

    assert asked.value.need == Need("file", "a/b.json", INPUT_BYTES)


def test_a_file_that_was_sent_is_there():
    assert world(files={"x": b"1"}).read_file("x") == b"1"


def test_a_file_that_the_caller_could_not_read_is_an_error_with_its_reason():
    with pytest.raises(UnreadableInput, match="cannot read x: No such file or directory"):
        world(files={"x": "No such file or directory"}).read_file("x")


def test_as_much_input_is_asked_for_as_a_payload_may_hold_with_some_white_space():
    assert INPUT_BYTES > PAYLOAD_BYTES


def test_an_error_is_one_line_with_context_and_hint():
    error = IcError("it\nbroke", hint="mend it")

    assert line(world(program="ic"), "state set", error) == b"ic: state set: it broke; mend it\n"


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("run 'icctl init' here", "run 'ic init' here"),
        ("'icctl a' or 'icctl b'", "'ic a' or 'ic b'"),
        ("write: icctl run list", "write: ic run list"),
        ("icctl doctor --fix", "ic doctor --fix"),
        ("run: chmod 700 /home/icctl", "run: chmod 700 /home/icctl"),
        ("see /opt/icctl tools", "see /opt/icctl tools"),
        ("report it with the entry in icctl.log", "report it with the entry in icctl.log"),
    ],
)
def test_a_hint_names_the_program_and_leaves_paths_alone(hint, told):
    assert advice("ic", hint) == told
    assert advice("icctl", hint) == hint


def test_what_the_caller_wrote_is_never_changed():
    error = Usage("there is no 'icctl run' here", hint="mend it")

    assert (
        line(world(program="ic"), "x", error) == b"ic: x: there is no 'icctl run' here; mend it\n"
    )


def test_an_error_without_context_and_hint_is_shorter():
    assert line(world(), "", IcError("it broke")) == b"icctl: it broke\n"


def test_an_error_about_bytes_that_are_no_text_is_printed_all_the_same():
    assert line(world(), "", IcError("no \udcff")) == b"icctl: no \\udcff\n"
