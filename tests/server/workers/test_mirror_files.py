"""Envelope files: written whole, removed when they are ours, and nobody else's harmed."""

import json
import os
import stat

import pytest

from icd import config
from icd.features import interband
from icd.features.state.store import Row
from icd.server.workers.mirror_files import FILES, TEMPORARY, Files, opened, write

NOW = 1_800_000_000
ORIGIN = "/p/.clavain/intercore.db"
BEAD = ("bead", "s1")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "band"


def copies(root, origin=ORIGIN, **channels):
    mapping = interband.channels(config.Mirror(channels=channels))
    return Files(str(root), mapping, origin=origin)


def row(value=1, *, key="bead", scope="s1", version=1, at=NOW, expires_ms=None):
    return Row(key, scope, json.dumps({"n": value}), version, at, None, expires_ms, 7, "w")


def update(found, *rows, now=NOW):
    return found.update({(r.key, r.scope_id): r for r in rows}, now_ms=now * 1000)


def files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def value(root, file="interphase/bead/s1.json"):
    return json.loads((root / file).read_text())["payload"]["n"]


def foreign(root, *, modified, content='{"version":"1.0.0","payload":{"n":"theirs"}}'):
    file = root / "interphase" / "bead" / "s1.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    os.utime(file, (modified, modified))
    return file


# --- writing ---


def test_a_row_becomes_a_private_file_as_old_as_itself(root):
    outcome = update(copies(root), row(at=NOW - 90))

    file = root / "interphase" / "bead" / "s1.json"
    assert outcome.written == 1
    assert value(root) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_mtime == NOW - 90
    for directory in (root, file.parent.parent, file.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_nothing_is_written_twice(root):
    found = copies(root)
    update(found, row())

    assert update(found, row()).written == 0
    assert update(copies(root), row()).written == 0  # nor after a restart


def test_a_reader_finds_the_old_content_or_the_new_one(root):
    found = copies(root)
    update(found, row(1))
    with (root / "interphase" / "bead" / "s1.json").open() as reader:
        update(found, row(2, version=2))

        assert json.loads(reader.read())["payload"] == {"n": 1}
    assert value(root) == 2
    assert files(root) == ["interphase/bead/s1.json"]


def test_a_row_without_a_scope_has_no_file(root):
    assert update(copies(root), row(scope="")).written == 0
    assert not root.exists()


def test_a_name_that_is_too_long_is_a_failure_and_the_others_are_written(root):
    outcome = update(copies(root), row(scope="x" * 300), row(scope="s1", version=2))

    assert list(outcome.failed) == [("bead", "x" * 300)]
    assert "File name too long" in outcome.failed["bead", "x" * 300]
    assert files(root) == ["interphase/bead/s1.json"]


def test_a_root_that_cannot_be_written_to_is_a_failure(root):
    root.write_text("not a directory")

    outcome = update(copies(root), row())

    assert list(outcome.failed) == [BEAD]
    assert outcome.written == 0


# --- removing ---


def test_a_row_that_is_gone_takes_its_file_along(root):
    found = copies(root)
    update(found, row())

    outcome = found.update({BEAD: None}, now_ms=NOW * 1000)

    assert outcome.removed == 1
    assert files(root) == []


def test_what_was_never_mirrored_is_not_missed(root):
    outcome = copies(root).update({BEAD: None}, now_ms=NOW * 1000)

    assert (outcome.removed, outcome.failed) == (0, {})


def test_a_file_has_had_its_time_when_its_row_expires(root):
    found = copies(root)
    update(found, row(expires_ms=NOW * 1000 + 500))

    assert {name: copy.until_ms for name, copy in found.copies.items()} == {BEAD: NOW * 1000 + 500}
    assert update(found, row(expires_ms=NOW * 1000)).removed == 1
    assert found.copies == {}


def test_a_row_that_nobody_writes_any_more_loses_its_file_and_gets_it_back(root):
    found = copies(root, bead=config.Channel(retention_seconds=60))
    update(found, row())

    assert update(found, row(), now=NOW + 60).removed == 1
    assert update(found, row(version=2, at=NOW + 61), now=NOW + 61).written == 1


def test_a_database_that_is_gone_takes_all_its_files_along(root):
    found = copies(root)
    update(found, row(), row(key="lane", version=2))

    assert found.forget_all().removed == 2
    assert files(root) == []


# --- files of others ---


def test_a_newer_file_of_somebody_else_is_kept(root):
    foreign(root, modified=NOW + 5)

    outcome = update(copies(root), row(), now=NOW + 6)

    assert (outcome.kept, outcome.written) == (1, 0)
    assert value(root) == "theirs"


def test_an_older_one_is_replaced(root):
    foreign(root, modified=NOW - 5)

    assert update(copies(root), row()).written == 1
    assert value(root) == 1


def test_a_file_from_the_far_future_stops_nobody(root):
    foreign(root, modified=NOW + 100_000)

    assert update(copies(root), row()).written == 1


def test_a_file_of_somebody_else_is_never_removed(root):
    found = copies(root)
    update(found, row())
    foreign(root, modified=NOW + 5)

    outcome = found.update({BEAD: None}, now_ms=NOW * 1000)

    assert outcome.removed == 0
    assert value(root) == "theirs"


def test_of_two_projects_with_the_same_session_the_last_writer_wins(root):
    one, other = copies(root), copies(root, origin="/q/.clavain/intercore.db")
    update(other, row("other", at=NOW + 10), now=NOW + 10)

    assert update(one, row("one", at=NOW), now=NOW + 11).kept == 1
    assert update(one, row("one", at=NOW + 12, version=2), now=NOW + 12).written == 1
    assert other.update({BEAD: None}, now_ms=NOW * 1000).removed == 0
    assert value(root) == "one"


# --- rows that come to the same file ---


def test_of_two_scopes_with_the_same_file_the_last_written_is_there(root):
    found = copies(root)

    update(found, row("new", scope="a/b", version=2), row("old", scope="a_b", version=1))
    assert value(root, "interphase/bead/a_b.json") == "new"

    update(found, row("newest", scope="a_b", version=3))
    assert value(root, "interphase/bead/a_b.json") == "newest"
    update(found, row("new", scope="a/b", version=2))
    assert value(root, "interphase/bead/a_b.json") == "newest"


def test_a_file_that_becomes_free_goes_to_the_row_that_is_left(root):
    found = copies(root)
    left = row("left", scope="a/b", version=1)
    update(found, left, row("gone", scope="a_b", version=2))

    outcome = found.update({("bead", "a_b"): None}, now_ms=NOW * 1000)

    assert outcome.again == {("bead", "a/b")}
    assert found.copies == {}  # so that it is found again, should this fail
    update(found, left)
    assert value(root, "interphase/bead/a_b.json") == "left"


def test_rows_of_two_keys_that_come_to_the_same_file_share_it(root):
    same = config.Channel(path="interphase/bead", type="note", retention_seconds=60)
    found = copies(root, note=same)
    update(found, row("bead", version=1), row("note", key="note", version=2))
    assert value(root) == "note"

    outcome = found.update({("note", "s1"): None}, now_ms=NOW * 1000)

    assert (outcome.removed, outcome.again) == (0, {BEAD})
    update(found, row("bead", version=1))
    assert value(root) == "bead"


# --- planted things ---


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(root, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file = foreign(root, modified=NOW)
    file.unlink()
    file.symlink_to(victim)

    assert update(copies(root), row()).written == 1
    assert victim.read_text() == "precious"
    assert not file.is_symlink()


@pytest.mark.parametrize("place", ["interphase", "interphase/bead"])
def test_a_link_in_the_place_of_a_directory_is_refused(root, tmp_path, place):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "bead").mkdir(parents=True)
    (root / place).parent.mkdir(parents=True)
    (root / place).symlink_to(elsewhere)

    outcome = update(copies(root), row())

    assert list(outcome.failed) == [BEAD]
    assert list(elsewhere.rglob("*.json")) == []


def test_a_directory_in_the_place_of_a_file_is_a_failure(root):
    (root / "interphase" / "bead" / "s1.json" / "x").mkdir(parents=True)

    assert list(update(copies(root), row()).failed) == [BEAD]
    assert files(root) == []


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(root):
    (root / "interphase" / "bead").mkdir(parents=True)
    os.mkfifo(root / "interphase" / "bead" / "s1.json")

    assert update(copies(root), row()).written == 1
    assert value(root) == 1


def test_a_directory_of_another_user_is_refused(root):
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    (root / "interphase" / "bead").mkdir(parents=True)
    os.chown(root / "interphase" / "bead", 65534, 65534)

    assert "belongs to another user" in update(copies(root), row()).failed[BEAD]


# --- sweeping ---


def test_what_an_earlier_life_left_behind_is_swept_away(root):
    update(copies(root), row(), row(key="lane", version=2))
    again = copies(root)
    update(again, row(key="lane", version=2))

    assert again.sweep(now_ms=NOW * 1000).removed == 1
    assert files(root) == ["interphase/lane/s1.json"]


def test_files_of_others_and_of_other_databases_are_never_swept_however_old_they_are(root):
    update(copies(root, origin="/q/x.db"), row(scope="theirs"))
    foreign(root, modified=NOW - 10**7)
    hasty = copies(root, bead=config.Channel(retention_seconds=1))

    assert hasty.sweep(now_ms=(NOW + 10**6) * 1000).removed == 0
    assert files(root) == ["interphase/bead/s1.json", "interphase/bead/theirs.json"]


def test_temporary_files_of_a_crash_are_swept_away(root):
    update(copies(root), row())
    directory = root / "interphase" / "bead"
    own = f"{TEMPORARY}x.json"  # of a row whose scope is called like that
    ages = {f"{TEMPORARY}1-1.tmp": 61, f"{TEMPORARY}2-1.tmp": 1, ".theirs.tmp": 99, own: 99}
    for name, age in ages.items():
        (directory / name).write_text("")
        os.utime(directory / name, (NOW - age, NOW - age))
    found = copies(root)
    update(found, row())

    found.sweep(now_ms=NOW * 1000)

    assert sorted(os.listdir(directory)) == [f"{TEMPORARY}2-1.tmp", own, ".theirs.tmp", "s1.json"]


def test_sweeping_where_nothing_is_makes_nothing(root):
    assert copies(root).sweep(now_ms=NOW * 1000).errors == []
    assert not root.exists()


def test_a_channel_that_cannot_be_swept_does_not_keep_the_others_from_it(root):
    update(copies(root), row(), row(key="lane", version=2))
    (root / "interlock").symlink_to(root / "interphase")

    outcome = copies(root).sweep(now_ms=NOW * 1000)

    assert outcome.removed == 2


def test_a_write_that_fails_leaves_no_temporary_file(root):
    channel = interband.channels(config.Mirror())["bead"]
    with opened(str(root), channel, create=True) as directory:
        with pytest.raises(OSError):
            write(directory, "x/y", b"content", modified=NOW)

        assert os.listdir(directory) == []


# --- limits ---


def test_a_key_has_so_many_files_and_those_of_its_newest_rows(root):
    found = copies(root)
    update(found, *(row(n, scope=f"s{n}", version=n) for n in range(1, FILES + 1)))
    update(found, row(key="lane", version=1))

    outcome = update(found, row(scope="new", version=FILES + 1), row(scope="old", version=0))

    assert (outcome.written, outcome.removed) == (1, 1)
    assert found.left_out == {"bead": 2}
    assert len(list((root / "interphase" / "bead").iterdir())) == FILES
    assert not (root / "interphase" / "bead" / "s1.json").exists()
    assert not (root / "interphase" / "bead" / "old.json").exists()
    assert (root / "interphase" / "lane" / "s1.json").exists()


def test_a_row_that_displaces_another_makes_no_room(root):
    """Else a key with steady writes would have all its rows looked at again and again."""
    found = copies(root)
    update(found, *(row(n, scope=f"s{n}", version=n) for n in range(1, FILES + 1)))

    written = update(found, row(scope="new", version=FILES + 1))
    deleted = found.update({("bead", "new"): None}, now_ms=NOW * 1000)

    assert (written.removed, written.displaced) == (1, 1)
    assert (deleted.removed, deleted.displaced) == (1, 0)


def test_a_row_from_the_future_does_not_beat_what_others_write_later(root):
    mine, theirs = copies(root), copies(root, origin="/q/x.db")
    update(mine, row(1, at=NOW + 10**6))

    outcome = update(theirs, row(2, at=NOW + 1), now=NOW + 1)
    kept = update(copies(root), row(1, at=NOW + 10**6, version=2), now=NOW)

    assert outcome.written == 1
    assert kept.kept == 1
    assert value(root) == 2
