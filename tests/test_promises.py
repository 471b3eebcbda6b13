"""The promises in the documentation are guarded by tests that exist."""

import re
from pathlib import Path

import pytest

from tests.torture.suites import SUITES

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
STABILITY = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
# The text above the first heading of a promise says what the document is.
PROMISES = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_is_guarded_by_tests_that_exist(promise: str) -> None:
    assert_guarded(PROMISES[promise])


def test_what_stays_the_same_is_guarded_by_tests_that_exist() -> None:
    assert_guarded(STABILITY)


def assert_guarded(text: str) -> None:
    guards = re.findall(r"^- `(tests/\S+)::(\w+)`$", text, re.MULTILINE)

    assert guards
    for file, name in guards:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {name}\(", source, re.MULTILINE), f"{file}::{name}"


def test_every_suite_tries_to_break_a_promise() -> None:
    named = set(re.findall(r"make torture SUITES=(\w+)", DOCUMENT))

    assert named == {suite.name for suite in SUITES}
