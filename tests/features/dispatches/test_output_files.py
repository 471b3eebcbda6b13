"""What an agent leaves is read with care."""

import json
import os
import time
from pathlib import Path

import pytest

from icd.features.dispatches.runner import output_files
from icd.features.dispatches.runner.record import document


@pytest.fixture
def file(tmp_path: Path):
    def write(content: bytes) -> bytes:
        path = tmp_path / "out.md.verdict"
        path.write_bytes(content)
        return os.fsencode(path)

    return write


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"STATUS: pass\nSUMMARY: fine\n", ("pass", "fine")),
        (b"# verdict\nSTATUS:warn\r\nSUMMARY:   a  b  \r\n", ("warn", "a  b")),
        (b"SUMMARY: only\n", (None, "only")),
        (b"STATUS: first\nSTATUS: second\n", ("first", None)),
        (b"STATUS:\nSUMMARY:\n", (None, None)),
        (b"status: pass\n STATUS: pass\n", (None, None)),
        (b"", (None, None)),
        (b"\xff\xfeSTATUS: pass\nSUMMARY: \xff\0x\n", (None, "� x")),
        (b"STATUS: " + b"x" * 5000 + b"\n", ("x" * output_files.TEXT_CHARACTERS, None)),
        (b"\n" * output_files.FILE_BYTES + b"STATUS: too late\n", (None, None)),
    ],
)
def test_a_verdict_is_two_lines_among_others(file, content, expected):
    assert output_files.verdict(file(content), None) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"Tokens: 10 in / 20 out\n", (10, 20)),
        (b"Turns: 3\nTokens: 1,200 in / 34 out, 9 cached\n", (1200, 34)),
        (b"Tokens: 0 in / 0 out", (0, 0)),
        (b"Tokens: 99999999999999999999 in / 1 out", (None, 1)),
        (b"Tokens: 9999999999999999999 in / 1 out", (2**63 - 1, 1)),
        (b"Tokens: -1 in / 1 out", (None, 1)),
        ("Tokens: \u0661 in / 1 out".encode(), (None, 1)),
        (b"Tokens: 10 in\n", (None, None)),
        (b"Tokens: 10 out / 20 in\n", (None, None)),
        (b"Tokens:\n", (None, None)),
        (b"", (None, None)),
    ],
)
def test_tokens_are_two_numbers_in_a_line(file, content, expected):
    assert output_files.tokens(file(content), None) == expected


def test_only_a_plain_file_is_read(tmp_path: Path, file):
    real = Path(os.fsdecode(file(b"STATUS: pass\n")))
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(real)
    os.mkfifo(pipe)

    found = [
        output_files.verdict(os.fsencode(p), None) for p in (link, pipe, tmp_path, tmp_path / "no")
    ]

    assert found == [(None, None)] * 4


def test_a_file_counts_once_it_has_changed(file):
    path = file(b"STATUS: old\n")
    before = output_files.mark(path)

    unchanged = output_files.verdict(path, before)
    file(b"STATUS: new one\n")

    assert unchanged == (None, None)
    assert output_files.verdict(path, before) == ("new one", None)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b'{"turns":1,"commands":2,"messages":3,"name":"x"}',
            {"turns": 1, "commands": 2, "messages": 3},
        ),
        (b'{"turns":-1,"commands":true,"messages":1.5}', {}),
        (b'{"turns":99999999999999999999}', {}),
        (b"[1]", {}),
        (b"{", {}),
        (b"[" * 60_000, {}),
        (b"\xff", {}),
    ],
)
def test_progress_is_counts_that_make_sense(monkeypatch, file, content, expected):
    path = os.fsdecode(file(content))
    monkeypatch.setattr(output_files, "PROGRESS", path.replace("{", "{{"))

    assert output_files.progress(1) == expected


def test_an_end_is_a_line_of_json_whatever_it_says():
    end = {"id": "x", "exit_code": -1, "verdict_summary": '"\\\n\0ü\ud800</script>', "turns": None}

    line = document(end)

    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == end


@pytest.mark.parametrize(("age_s", "is_left"), [(3600, False), (0, True)])
def test_counts_that_are_older_than_the_agent_are_of_another(monkeypatch, file, age_s, is_left):
    now_ns = time.time_ns()
    path = os.fsdecode(file(b'{"turns": 3}'))
    os.utime(path, ns=(now_ns, now_ns - age_s * 10**9))
    monkeypatch.setattr(output_files, "PROGRESS", path.replace("{", "{{"))

    output_files.clear_progress(42, now_ns)

    assert os.path.exists(path) == is_left
