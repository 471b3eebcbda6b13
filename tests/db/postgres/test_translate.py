"""One text of each statement, for both engines."""

import importlib
import pkgutil
import re

import pytest

import icd.app
import icd.features
from icd.db.postgres.translate import plan

_BEGINS = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")


def statements():
    """Every statement that a module of the product names."""
    for package in (icd.features, icd.app):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if module.name.endswith("__main__"):
                continue
            held = vars(importlib.import_module(module.name))
            for name, value in held.items():
                if isinstance(value, str) and _BEGINS.match(value) and "{" not in value:
                    yield f"{module.name}.{name}", value


def test_every_statement_of_the_product_is_translated():
    found = dict(statements())

    assert len(found) > 150
    for name, text in found.items():
        made = plan(text)
        bare = re.sub(r"'[^']*'", "", made.text)
        numbers = {int(number) for number in re.findall(r"\$(\d+)", bare)}
        assert "?" not in bare, name
        assert not re.search(r"(?<![:\w]):[a-z]", bare), name
        assert numbers == set(range(1, len(made.given) + 1)), name


# What one engine takes and the other does not.
_FOREIGN = (
    r"\bREPLACE INTO\b", r"\bOR IGNORE\b", r"\bOR REPLACE\b", r"\bGLOB\b", r"\bIS [:?]",
    r"\(:\w+ OR\b", r"\bIS NOT [:?(e]", r"\bNOT [:?]", r"\b0x[0-9a-f]", r"[:?]\w+ IS NULL OR\b", r"\+[a-z]+_id\b",
    r"\bLIMIT -1\b", r"\bIIF\(", r"\bunixepoch\b", r"\bstrftime\b", r"\btypeof\(", r"\bjson_extract\(",
    r"\bINDEXED BY\b", r"\bcount\(\) ", r"\bifnull\(", r"\brandomblob\(",
)  # fmt: skip


def test_no_statement_has_words_that_only_one_engine_takes():
    found = {
        f"{name}: {words}"
        for name, text in statements()
        for words in _FOREIGN
        if re.search(words, text)
    }

    assert found == set()


@pytest.mark.parametrize(
    ("text", "made", "names"),
    [
        ("SELECT ?, ?", "SELECT $1, $2", (1, 2)),
        ("SELECT ?2, ?1, ?2", "SELECT $2, $1, $2", (1, 2)),
        ("SELECT :b, :a, :b", "SELECT $1, $2, $1", ("b", "a")),
        ("SELECT '?', ':a', \"?\", ? -- ?", "SELECT '?', ':a', \"?\", $1 -- ?", (1,)),
        ("SELECT a::bigint, :a /* :b */", "SELECT a::bigint, $1 /* :b */", ("a",)),
    ],
)
def test_placeholders_get_numbers(text, made, names):
    found = plan(text)

    assert (found.text, found.given) == (made, names)


def test_names_and_numbers_are_not_mixed():
    with pytest.raises(ValueError, match="mixed"):
        plan("SELECT ?, :a")


def test_values_are_given_in_the_order_of_the_numbers():
    assert plan("SELECT :b, :a").values({"a": 1, "b": 2}) == [2, 1]
    assert plan("SELECT ?, ?").values((1, 2)) == (1, 2)


def test_the_number_of_a_row_is_asked_for_where_there_is_one():
    assert plan("INSERT INTO events (a) VALUES (?)").text.endswith("RETURNING seq")
    assert plan("INSERT INTO state (a) VALUES (?)").text.endswith("VALUES ($1)")
    assert not plan("INSERT INTO events (a) VALUES (?) RETURNING seq").numbered
