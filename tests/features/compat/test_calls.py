"""compat.*: the database's side of the way over, for any client that reads files itself."""

import msgspec
import pytest
from msgspec import Raw

from icd.errors import InvalidName, InvalidPayload, SecretRefused
from icd.features.compat.import_ import MANY, Import
from icd.features.compat.store import Document, Guard

MTIME = 1_799_999_000_000


def files(payload=b'{"a":1}', *, key="dispatch", scope="s1", guards=("stop",)):
    return {
        "documents": [Document(key, scope, Raw(payload), MTIME)],
        "guards": [Guard(name, scope, MTIME, 0) for name in guards],
    }


def test_verdicts_come_in_the_order_of_the_files(result):
    result("compat.import", **files())

    found = result(
        "compat.compare",
        documents=[Document("bead", "s1", Raw(b"1"), MTIME), *files()["documents"]],
        guards=[*files()["guards"], Guard("handoff", "s1", MTIME, 0)],
    )

    assert msgspec.to_builtins(found) == {"documents": ["new", "same"], "guards": ["same", "new"]}


def test_of_two_files_for_one_row_the_first_that_is_newer_wins(result):
    older = Document("dispatch", "s1", Raw(b'"older"'), MTIME - 5000)

    found = result("compat.import", documents=[*files()["documents"], older])

    assert found.documents == ["new", "superseded"]


def test_import_stores_a_payload_without_the_white_space_around_it(result):
    result("compat.import", **files(b' {"a": 1}\n'))

    assert bytes(result("state.get", key="dispatch", scope_id="s1").payload) == b'{"a": 1}'


def test_importing_again_under_the_same_request_id_changes_nothing(result):
    first = result("compat.import", request_id="r", **files())
    second = result("compat.import", request_id="r", **files())

    assert (first.documents, second.documents) == (["new"], ["same"])


def test_import_makes_the_daemon_forget_what_it_remembers_of_the_rows(ask, recent, still):
    write = {"key": "dispatch", "scope_id": "s1", "payload": '"mine"', "debounce_ms": 60_000}
    still.wall_ms = MTIME - 5000
    ask("state.set", recent=recent, **write)
    ask("compat.import", recent=recent, **files())

    again = ask("state.set", recent=recent, **write)

    assert not again.result.skipped


@pytest.mark.parametrize(
    "wrong, error",
    [
        (files(key="Dispatch"), InvalidName),
        (files(scope="a\tb"), InvalidName),
        (files(guards=[""]), InvalidName),
        (files(b"{"), InvalidPayload),
        (files(b'"password=0123456789"'), SecretRefused),
    ],
)
@pytest.mark.parametrize("method", ["compat.compare", "compat.import"])
def test_what_state_and_sentinels_refuse_is_refused_before_anything_is_written(
    call, method, wrong, error
):
    with pytest.raises(error):
        call(method, **wrong)


def test_a_failing_file_undoes_the_whole_call(ask, result, database):
    database.connection().execute(
        "CREATE TRIGGER meddle AFTER INSERT ON sentinels BEGIN DELETE FROM sentinels; END"
    )

    answer = ask("compat.import", **files())

    assert answer.error.name == "unhealthy"
    assert result("state.get", key="dispatch", scope_id="s1") is None


@pytest.mark.parametrize(
    "params",
    [
        {"guards": [{"name": "n", "scope_id": "s", "mtime_ms": 1, "interval": 1}] * (MANY + 1)},
        {"guards": [{"name": "n", "scope_id": "s", "mtime_ms": -1, "interval": 1}]},
        {"guards": [{"name": "n", "scope_id": "s", "mtime_ms": 253_402_300_800_000, "interval": 1}]},
        {"guards": [{"name": "n", "scope_id": "s", "mtime_ms": 1, "interval": -1}]},
        {"documents": [{"key": "k", "scope_id": "s", "mtime_ms": 1}]},
    ],
)  # fmt: skip
def test_numbers_out_of_range_and_missing_fields_are_refused(params):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(params, Import)


def test_status_tells_every_key_that_was_asked_for_in_that_order(result):
    result("compat.import", **files())

    stop, bead = result("compat.status", keys=["stop", "bead"])

    assert msgspec.to_builtins(stop) == {
        "key": "stop",
        "state": 0,
        "sentinels": 1,
        "state_at": None,
        "state_at_iso": None,
        "sentinels_at": MTIME // 1000,
        "sentinels_at_iso": "2027-01-15T07:43:20Z",
    }
    assert (bead.key, bead.state, bead.sentinels) == ("bead", 0, 0)


@pytest.mark.parametrize("key, scopes", [("dispatch", 1), ("stop", 1), ("Never valid!", 0)])
def test_check_counts_scopes_of_any_key(result, key, scopes):
    result("compat.import", **files())

    assert result("compat.check", key=key).scopes == scopes
