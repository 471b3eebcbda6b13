"""Where the parts of a TOML document stand."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd.config.lines import locate


def test_headers_and_assignments_have_their_lines():
    found = locate("# c\na = 1\n\n[t]\nb = 2\n  [t.u]\n\tc = 3\n")

    assert found == {("a",): 2, ("t",): 4, ("t", "b"): 5, ("t", "u"): 6, ("t", "u", "c"): 7}


def test_the_parts_of_dotted_names_and_inline_tables_have_the_line_of_the_whole():
    found = locate('a.b = 1\nc = {d = 2, "e.f" = 3}\n')

    assert found == {
        ("a",): 1, ("a", "b"): 1, ("c",): 2, ("c", "d"): 2, ("c", "e.f"): 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", ['"""\n[t]\nx = 1\n"""', "'''\n# no\n'''", "[\n1,\n2, # two\n]", '["[t]",\n"b"]']
)
def test_a_value_of_several_lines_is_one_value(value):
    found = locate(f"a = {value}\nb = 1\n")

    assert found == {("a",): 1, ("b",): 2 + value.count("\n")}


def test_an_array_of_tables_has_the_line_of_its_first():
    assert locate("[[a]]\nx = 1\n[[a]]\nx = 2\n") == {("a",): 1, ("a", "x"): 2}


def test_what_comes_after_a_long_value_has_its_line():
    text = "a = 1\nb = [\n" + "1, # one\n" * 200 + "]\nc = 1\n"

    assert locate(text) == {("a",): 1, ("b",): 2, ("c",): 204}


_names = st.sampled_from(["a", "b", "c", '"d.e"', "'[f]'"])
_values = st.sampled_from(["1", '"x # [y]"', "[1,\n 2]", '"""\nb = 1\n"""', "{a = 1}"])


@given(st.dictionaries(_names, st.dictionaries(_names, _values)))
def test_every_value_is_found_where_it_was_written(tables):
    lines, expected = [], {}
    for table, entries in tables.items():
        lines.append(f"[{table}]")
        for name, value in entries.items():
            path = (table.strip("\"'"), name.strip("\"'"))
            expected[path] = len(lines) + 1
            lines += f"{name} = {value}".split("\n")
    text = "\n".join(lines)

    found = locate(text)

    assert tomllib.loads(text).keys() == {path[0] for path in found}
    assert {path: found[path] for path in expected} == expected
