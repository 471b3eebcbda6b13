"""`icctl state …`: what is printed, and the exit codes that scripts rely on."""

import json

import pytest

from icd.app.invocation import Output


def put(ic, payload=b"1", key="k", scope="s", *more):
    output = ic("state", "set", key, scope, *more, stdin=payload)
    assert output == Output(0)


def test_set_says_nothing_and_get_prints_the_payload_verbatim(ic):
    put(ic, b' {"b":1,\n "a":2}\n')

    assert ic("state", "get", "k", "s") == Output(0, b'{"b":1,\n "a":2}\n')


def test_a_payload_may_come_from_a_file(ic):
    ic("state", "set", "k", "s", "@f.json", files={"f.json": b"[1]\n"})

    assert ic("state", "get", "k", "s").stdout == b"[1]\n"


def test_a_payload_may_stand_on_the_command_line(ic):
    ic("state", "set", "k", "s", "--value", '"é"')

    assert ic("state", "get", "k", "s").stdout == '"é"\n'.encode()


def test_a_file_that_cannot_be_read_stores_nothing(ic):
    output = ic("state", "set", "k", "s", "@f", files={"f": "No such file or directory"})

    assert (output.exit, output.stdout) == (2, b"")
    assert ic("state", "get", "k", "s").exit == 1


def test_what_is_not_there_is_a_silent_no(ic):
    assert ic("state", "get", "k", "s") == Output(1)


@pytest.mark.parametrize(
    "payload, told",
    [
        (b"", b"invalid JSON payload"),
        (b"{", b"invalid JSON payload"),
        (b"\xff", b"not UTF-8"),
        (b'"' + b"x" * 1_100_000 + b'"', b"payload too large: "),
        (b'"pass' + b'word=hunter2hunter2"', b"likely secret"),
    ],
)
def test_a_payload_that_is_refused_exits_with_2_and_is_not_echoed(ic, payload, told):
    output = ic("state", "set", "k", "s", stdin=payload)

    assert (output.exit, output.stdout) == (2, b"")
    assert told in output.stderr
    assert b"hunter2" not in output.stderr


@pytest.mark.parametrize("key", ["", "K", "k.", "a b"])
@pytest.mark.parametrize("verb", ["get", "delete", "incr"])
def test_a_bad_key_exits_with_2(ic, verb, key):
    assert ic("state", verb, key, "s").exit == 2


def test_an_empty_scope_is_a_scope(ic):
    put(ic, b"7", "k", "")

    assert ic("state", "get", "k", "").stdout == b"7\n"


# --- ttl ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [["--ttl=1.5s"], ["--ttl", "1.5s"], ["--ttl", "1s500ms"]])
def test_a_ttl_is_never_cut_short(ic, clock, form):
    put(ic, b"1", "k", "s", *form)

    clock.wall_ms += 1499
    just_before = ic("state", "get", "k", "s").exit
    clock.wall_ms += 1

    assert (just_before, ic("state", "get", "k", "s").exit) == (0, 1)


def test_a_ttl_below_a_second_is_refused(ic):
    output = ic("state", "set", "k", "s", "--ttl=500ms", "--value", "1")

    assert output.exit == 2
    assert b"state set: TTL must be at least 1 second (got 500ms)" in output.stderr


@pytest.mark.parametrize("ttl", ["0", "0s"])
def test_a_ttl_of_zero_means_for_ever(ic, clock, ttl):
    put(ic, b"1", "k", "s", f"--ttl={ttl}")
    clock.wall_ms *= 2

    assert ic("state", "get", "k", "s").exit == 0


# --- versions, counters ---------------------------------------------------------------------


def test_a_version_conflict_is_an_expected_no(ic):
    put(ic)

    output = ic("state", "set", "k", "s", "--value", "2", "--if-version=0")

    assert (output.exit, output.stdout) == (1, b"")
    assert b"k s already exists (version 1)" in output.stderr


def test_a_counter_prints_its_value(ic):
    printed = [
        ic("state", "incr", "n", "s", *more).stdout for more in ([], ["--by=5"], ["--by", "-7"])
    ]

    assert printed == [b"1\n", b"6\n", b"-1\n"]


def test_a_counter_over_text_exits_with_2(ic):
    put(ic, b'"x"')

    assert ic("state", "incr", "k", "s").exit == 2


def test_a_counter_with_a_ttl_starts_again_after_its_window(ic, clock):
    ic("state", "incr", "n", "s", "--ttl=1h")
    ic("state", "incr", "n", "s", "--ttl=1h")
    clock.wall_ms += 3_600_000

    assert ic("state", "incr", "n", "s", "--ttl=1h").stdout == b"1\n"


# --- delete, list, prune --------------------------------------------------------------------


def test_delete_exits_with_0_either_way_and_says_which(ic):
    put(ic)

    assert [ic("state", "delete", "k", "s") for _ in range(2)] == [
        Output(0, b"deleted\n"),
        Output(0, b"not found\n"),
    ]


def test_delete_all_counts(ic, stdout):
    put(ic, b"1", "k", "a")
    put(ic, b"1", "k", "b")

    assert stdout("state", "delete", "--all", "k") == "2 deleted\n"


def test_list_prints_scopes_sorted_one_per_line(ic, stdout):
    for scope in ("b", "a c", "é"):
        put(ic, b"1", "k", scope)

    assert stdout("state", "list", "k") == "a c\nb\né\n"


def test_list_of_nothing_prints_nothing(stdout):
    assert stdout("state", "list", "k") == ""


@pytest.mark.parametrize("form", [["--prefix=k."], ["--prefix", "k."]])
def test_list_by_prefix_prints_key_and_scope(ic, stdout, form):
    for key in ("k.a", "k.b", "kk"):
        put(ic, b"1", key, "s")

    assert stdout("state", "list", *form) == "k.a\ts\nk.b\ts\n"


def test_prune_counts(ic, stdout, clock):
    put(ic, b"1", "k", "s", "--ttl=1s")
    clock.wall_ms += 1000

    assert stdout("state", "prune") == "1 pruned\n"


# --- --meta and --json ----------------------------------------------------------------------


def test_meta_prints_one_field_a_line(ic, stdout, clock):
    clock.wall_ms = 1_800_000_000_500
    put(ic, b"1", "k", "s", "--ttl=1m")

    assert stdout("state", "get", "k", "s", "--meta").splitlines() == [
        "key\tk",
        "scope_id\ts",
        "version\t1",
        "updated_at\t1800000000",
        "updated_at_iso\t2027-01-15T08:00:00Z",
        "expires_at\t1800000061",
        "expires_at_iso\t2027-01-15T08:01:01Z",
        "writer_pid\t41",
        "writer_session\t",
    ]


def test_json_holds_everything_with_sorted_keys_on_one_line(ic, stdout):
    put(ic, b'{\n "b": "<&>", "a": 1\n}')

    text = stdout("state", "get", "k", "s", "--json")

    assert text.count("\n") == 1
    assert not set("<>&") & set(text)
    found = json.loads(text)
    assert list(found) == sorted(found)
    assert found["payload"] == {"b": "<&>", "a": 1}
    assert found["writer_pid"] == 41


@pytest.mark.parametrize(
    "argv, expected",
    [
        (["state", "incr", "n", "s"], {"value": 1, "version": 1}),
        (["state", "set", "n", "s", "--value", "1"], {"version": 1}),
        (["state", "delete", "n", "s"], {"deleted": 0}),
        (["state", "delete", "--all", "n"], {"deleted": 0}),
        (["state", "prune"], {"pruned": 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_verb_can_answer_as_json(stdout, argv, expected):
    found = json.loads(stdout("--json", *argv))

    assert expected.items() <= found.items()


def test_lists_are_json_lists_even_when_empty(ic, stdout):
    empty = stdout("state", "list", "k", "--json")
    put(ic)

    assert empty == "[]\n"
    assert stdout("state", "list", "k", "--json") == '[{"key":"k","scope_id":"s"}]\n'


def test_what_is_not_there_prints_nothing_as_json_either(ic):
    assert ic("state", "get", "k", "s", "--json") == Output(1)
