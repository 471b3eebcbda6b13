"""Starts that failed are remembered where the next daemon finds them."""

import os
import stat
from pathlib import Path

from icd.server import start_failures as startups
from tests.conftest import NOW_MS


def told(directory: Path, now_ms: int = NOW_MS) -> list[str]:
    return [failed.sentence for failed in startups.recent(str(directory), now_ms)]


def test_what_was_recorded_is_told_in_order(tmp_path: Path):
    startups.record(str(tmp_path), "one", NOW_MS - 2)
    startups.record(str(tmp_path), "two\nlines", NOW_MS - 1)

    found = startups.recent(str(tmp_path), NOW_MS)

    assert [(f.at_ms, f.sentence) for f in found] == [
        (NOW_MS - 2, "one"),
        (NOW_MS - 1, "two lines"),
    ]


def test_a_directory_that_is_not_there_is_made_and_everything_is_private(tmp_path: Path):
    directory = tmp_path / "intercore"

    startups.record(str(directory), "broken", NOW_MS)

    assert told(directory) == ["broken"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / startups.NAME).stat().st_mode) == 0o600
    assert os.listdir(directory) == [startups.NAME]


def test_what_is_a_day_old_is_no_longer_told(tmp_path: Path):
    startups.record(str(tmp_path), "old", NOW_MS)

    assert told(tmp_path, NOW_MS + startups.RECENT_MS - 1) == ["old"]
    assert told(tmp_path, NOW_MS + startups.RECENT_MS) == []


def test_only_the_latest_are_kept_and_none_is_long(tmp_path: Path):
    for number in range(3 * startups.KEPT):
        startups.record(str(tmp_path), f"{number} " + "ä" * 5000, NOW_MS)

    found = told(tmp_path)

    assert [text.split(" ")[0] for text in found] == [
        str(n) for n in range(2 * startups.KEPT, 3 * startups.KEPT)
    ]
    assert (tmp_path / startups.NAME).stat().st_size <= startups.FILE_BYTES


def test_a_directory_of_ours_that_is_a_link_is_left_alone(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")

    startups.record(str(tmp_path / "link"), "broken", NOW_MS)

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_whatever_else_the_file_holds_is_passed_over(tmp_path: Path):
    (tmp_path / startups.NAME).write_bytes(b"\xff\nx y\n\n%d fine \xff\n" % NOW_MS)

    assert told(tmp_path) == ["fine \N{REPLACEMENT CHARACTER}"]


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(tmp_path: Path):
    os.mkfifo(tmp_path / startups.NAME)

    assert told(tmp_path) == []
    startups.record(str(tmp_path), "broken", NOW_MS)

    assert told(tmp_path) == ["broken"]


def test_where_nothing_can_be_written_nothing_happens(tmp_path: Path):
    (tmp_path / "plain").write_text("")
    startups.record(str(tmp_path / "plain"), "x", NOW_MS)

    assert told(tmp_path / "plain") == []
