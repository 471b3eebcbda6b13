"""A file of settings that is made to keep its reader busy is refused, or read in no time."""

import random
import re
import time
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd import config
from icd.config import shape
from icd.config.shape import Excess, locate

# What the reader may take, in units of what tomllib takes for a large harmless file in the same
# moment.  A limit in milliseconds would measure the machine: a noisy one takes thrice as long for
# both.  The worst takes 10 units; a scanner that copies what it has read so far takes 150.
MOST_UNITS = 30


def lines(pattern, count):
    return "".join(f"{pattern.replace('N', str(n))}\n" for n in range(count))


CHANNEL = "enabled = true\npath = 'mine/notes'\ntype = 'note'\nsession = 'scope'\n"
HARMLESS = lines(f"[mirror.channels.keyN]\n{CHANNEL}retention_seconds = 60", 100)


def read_in_time(path):
    """The file as it was read; the processor's time is compared, not that of a clock."""
    took, units = [], []
    for _ in range(5):
        began = time.process_time()
        tomllib.loads(HARMLESS)
        parsed = time.process_time()
        (file,) = config.read(None, str(path))
        units.append(parsed - began)
        took.append(time.process_time() - parsed)
        if min(took) < MOST_UNITS * min(units):
            return file
    raise AssertionError(f"it takes {min(took):.3f} s, {min(took) / min(units):.0f} units")


# Each of them is at one of the limits, or beyond it.
NASTY = {
    "statements": lines("aN=1", shape.STATEMENTS),
    "dotted names": lines("aN.b.c=1", shape.STATEMENTS),
    "many dots": lines("aN" + ".b" * (shape.DOTS - 1) + "=1", 180),
    "tables": lines("[aN.b.c]", 500),
    "tables far down": lines("[a" + ".b" * (shape.DOTS - 1) + ".cN]", 160),
    "arrays of tables": "[[a]]\nb.c.d=1\n" * 300,
    "dotted names in tables": lines("[tN]\na.b.c=1\nd.e.f=2", 230),
    "an array": "a=[" + "1,\n" * 2900 + "]",
    "arrays": lines("aN=[" + "1," * 15 + "]", 170),
    "dates": "a=[" + "1979-05-27T07:32:00Z,\n" * 700 + "]",
    "deep arrays": lines("aN=" + "[" * shape.DEPTH + "]" * shape.DEPTH, 170),
    "inline tables": lines("aN={b=1,c=1,d={e=1}}", 250),
    "a wide inline table": "a={" + ",".join(f"b{n}=1" for n in range(480)) + "}",
    "deep inline tables": lines("aN=" + "{b=" * shape.DEPTH + "1" + "}" * shape.DEPTH, 100),
    "large floats": lines("aN=1e999", 690),
    "many digits": "a=" + "9" * shape.WORD_CHARACTERS,
    "a hundred thousand digits": "a=" + "9" * 60_000,
    "hexadecimal digits": lines("aN=0x" + "f" * 250, 60),
    "underscores": lines("aN=" + "1_" * 100 + "1", 60),
    "quoted names": lines('"a.N"."b.c"=1', 690),
    "escapes": lines('aN="' + r"\n" * 2000 + '"', 4),
    "escaped characters": lines('aN="' + r"\u00e9" * 700 + '"', 3),
    "a long string": 'a="""' + "x\n" * 8000 + '"""',
    "continued lines": 'a="""' + "\\\n" * 8000 + '"""',
    "quotes": 'a="""' + '""\n' * 5000 + '"""',
    "a string without an end": 'a="""' + "x\n" * 30_000,
    "a literal without an end": "a='''" + "''\n" * 20_000,
    "strings without an end": "a=" + '"\n' * 30_000,
    "escapes without an end": "a=" + '"""\\' * 1000,
    "comments": "#\n" * 32_000,
    "nothing": "\n" * 65_000,
    "blanks": (" " * 4000 + "\n") * 16,
    "comments in an array": "a=[" + "#\n" * 30_000 + "]",
    "brackets": "[" * 60_000,
    "closed brackets": "]" * 60_000,
    "dots": "." * 60_000,
    "a name of dots": "a" + ".a" * 30_000 + "=1",
    "names of dots": lines("a" + ".a" * 1000 + "=1", 30),
    "a header of dots": "[a" + ".a" * 30_000 + "]",
    "commas": "a=[" + "," * 60_000,
    "the same again": "a=1\n" * 600,
}


@pytest.mark.parametrize("name", NASTY)
def test_nothing_keeps_the_reader_busy(tmp_path, name):
    path = tmp_path / "intercore.toml"
    path.write_text(NASTY[name])

    file = read_in_time(path)

    assert file.problems or file.values == {}


PIECES = [
    *("a", "b.c", "[t]", "[[u]]", "{", "}", "[", "]", ",", "=", ".", "#", '"', "'", '"""', "'''"),
    *("\\", r"\n", r"\u00e9", "1", "1e999", "0x1f", "1_0", "-inf", "nan", '"a.b"', '"#"', "'x'"),
    *("1979-05-27T07:32:00Z", "true", "\t", "\r", "é", "\n", "\n", " ", "=1\n", ' = "x"\n'),
    *("a={", "a=[", "0" * 90),
]


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_within_the_limits_is_judged_in_no_time(tmp_path, seed):
    chance = random.Random(seed)
    some = chance.sample(PIECES, chance.randint(2, 8))
    text = "".join(chance.choices(some, k=chance.randint(1, 20_000)))[:60_000]
    path = tmp_path / "intercore.toml"
    path.write_text(text, newline="")

    file = read_in_time(path)

    assert file.problems or file.values == tomllib.loads(text.replace("\r\n", "\n"))


_documents = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@settings(max_examples=500)
@given(_documents)
def test_a_valid_document_falls_into_statements_that_are_valid_alone(text):
    try:
        values = tomllib.loads(text)
    except ValueError:
        return

    try:
        found = locate(text)
    except Excess:  # valid, and larger than we read
        return

    assert {path[0] for path in found} == values.keys()


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("\n" + "x" * 5000, 2, "the line has more than 4608 characters"),
        ("a=1\nb" + ".b" * 17 + "=1", 2, "more than 16 dots in one setting"),
        ("a=1\n\nb=" + "[" * 9, 3, "more than 8 nested brackets"),
        ("a=1\n" * 701, 701, "more than 700 settings and tables"),
        ("a=[" + "1,\n" * 3001, 2999, "more than 3000 brackets, commas, dots and equals signs"),
        ("a=" + "9" * 257, 1, "more than 256 characters in a name or a number"),
        ('a="""' + "x\n" * 9000 + '"""', 1, "more than 16384 characters"),
    ],
)
def test_what_there_is_too_much_of_is_told_with_its_line(text, line, told):
    with pytest.raises(Excess, match=re.escape(told)) as refused:
        shape.check(text)

    assert refused.value.line == line


def test_what_looks_like_structure_in_strings_and_comments_does_not_count():
    shape.check("".join(f"a{n}='....[[[['  # ....[[[[\n" for n in range(500)))


def test_every_setting_and_many_channels_are_within_the_limits(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(HARMLESS)

    assert len(config.load(str(path)).mirror.channels) == 100


# --- Where the parts of a TOML document stand -----------------------------------------------------


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
