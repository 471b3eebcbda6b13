"""Overlap of patterns is exact: brute force over all short paths says the same."""

import itertools
import random
import re
import time

import pytest

from icd.errors import InvalidPattern, PatternTooComplex
from icd.features.coordination import globs
from icd.features.coordination.globs import Budget, escape, overlap, parse

PLAIN = ["a", "b", "?", "*"]
SETS = [*PLAIN, "[a]", "[ab]", "[!a]", "[^b]", "[a-b]"]


def words(length, letters):
    return ["".join(w) for n in range(1, length + 1) for w in itertools.product(letters, repeat=n)]


# What two patterns have in common, if anything, is no longer than the tokens of both without a
# star: of three segments with two tokens each, four names of two letters; of one segment with four
# tokens each, six letters.  A third letter stands for all that no set names.
NAMES = words(2, "ab")
PATHS = [p for depth in range(1, 5) for p in itertools.product(NAMES, repeat=depth)]
LONG = [(name,) for name in words(6, "abc")]


def translated(name):
    """A segment as a regular expression, written apart from the code that is tested."""
    sets = {"?": "[abc]", "*": "[abc]*", "[!a]": "[^a]"}
    return re.compile("".join(sets.get(t, t) for t in re.findall(r"\[[^]]*\]|.", name)))


def expanded(pattern, among):
    """All paths that match, as the bits of a number."""
    names = {name for path in among for name in path[:1]}
    fit = [
        segment if segment == "**" else set(filter(translated(segment).fullmatch, names))
        for segment in pattern.split("/")
    ]

    def go(at, parts):
        if at == len(fit):
            return not parts
        if fit[at] == "**":
            return any(go(at + 1, parts[n:]) for n in range(len(parts) + 1))
        return bool(parts) and parts[0] in fit[at] and go(at + 1, parts[1:])

    return sum(1 << number for number, path in enumerate(among) if go(0, path))


def a_segment(chance, tokens, most):
    return "".join(chance.choices(tokens, k=chance.randint(1, most)))


def a_pattern(chance):
    return "/".join(
        "**" if chance.random() < 0.25 else a_segment(chance, PLAIN, 2)
        for _ in range(chance.randint(1, 3))
    )


KINDS = pytest.mark.parametrize(
    ("make", "among"),
    [(a_pattern, PATHS), (lambda chance: a_segment(chance, SETS, 4), LONG)],
    ids=["segments", "characters"],
)


def differing(make, among, count):
    """The pairs, of all that so many patterns make, about which brute force says something else."""
    chance = random.Random(21)
    patterns = sorted({make(chance) for _ in range(3 * count)})
    patterns = chance.sample(patterns, min(count, len(patterns)))
    found = [(text, parse(text), expanded(text, among)) for text in patterns]
    pairs = [*itertools.product(found, repeat=2)]
    wrong = [
        (a, b)
        for (a, one, paths), (b, other, others) in pairs
        if overlap(one, other, Budget()) != bool(paths & others)
    ]
    return wrong, len(pairs)


@KINDS
def test_overlap_is_what_brute_force_over_all_paths_says(make, among):
    wrong, pairs = differing(make, among, 100)

    assert (wrong, pairs) == ([], 10_000)


@pytest.mark.long
@KINDS
def test_overlap_is_exact_for_a_hundred_thousand_random_pairs_of_each_kind(make, among):
    wrong, pairs = differing(make, among, 330)

    assert wrong == []
    assert pairs >= 100_000


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("src/*", "src/a/b.py", False),
        ("src/**", "src/a/b.py", True),
        ("src/**", "src", True),
        ("src/**/*.py", "**/test_*", True),
        ("**/a", "**/b", False),
        ("a/**/z", "**/m/**", True),
        ("*.py", "*.md", False),
        ("[a-f]*", "[g-z]*", False),
        ("[!a-z]", "q", False),
        (r"app/\[id\]/page.tsx", "app/[[]id]/page.tsx", True),
        (r"app/\[id\]/page.tsx", "app/i/page.tsx", False),
        ("**", "/etc/passwd", False),
        ("/etc/*", "/etc/passwd", True),
        ("[]]", "]", True),
        ("[a-]", "-", True),
        ("ä?", "äö", True),
        (".*", ".env", True),
        ("*", ".env", True),
    ],
)
def test_pairs_that_people_mean(one, other, expected):
    assert overlap(parse(one), parse(other), Budget()) is expected
    assert overlap(parse(other), parse(one), Budget()) is expected


def test_the_key_finds_every_pattern_that_overlaps():
    """What the index skips does not overlap: keys begin alike, or end alike."""
    chance = random.Random(22)
    found = 0
    for _ in range(20_000):
        one, other = parse(a_pattern(chance)), parse(a_pattern(chance))
        if not overlap(one, other, Budget()):
            continue
        found += 1
        a, b = one.key, other.key
        if a[0] == "*" or b[0] == "*":
            for path, key in ((one.path, b), (other.path, a)):
                assert path is None or key[0] != "*" or path.endswith(key[1:])
        else:
            assert a.startswith(b) or b.startswith(a)
    assert found > 1000


def test_an_escaped_path_matches_itself_only():
    for path in ("a*b", "[id]", "x?", "back\\slash", "plain"):
        assert parse(escape(path)).path == path


@pytest.mark.parametrize("bad", ["[", "a[b", "[!]", "x\\", "[z-a]", "[a/b]"])
def test_what_is_no_pattern_is_refused(bad):
    with pytest.raises(InvalidPattern):
        parse(bad)


@pytest.mark.parametrize(
    "huge",
    ["a" * 600 + "*", "/".join(["*"] * 65), "*a" * 65, "/".join(["a"] * 129)],
)
def test_what_is_too_complex_is_refused(huge):
    with pytest.raises(PatternTooComplex):
        parse(huge)


HOSTILE = [
    ("*a" * 60 + "*c", "*b" * 60 + "*d"),
    ("/".join(["**", "*a"] * 31), "/".join(["**", "*b"] * 31)),
    ("[a-z]" * 64, "[!0-9]" * 63 + "?"),
    ("*" + "a" * 500, "*" + "b" * 500),
    ("/".join(["**", "a"] * 32), "a/" * 120 + "b"),
]


@pytest.mark.parametrize(("one", "other"), HOSTILE)
def test_a_hostile_pair_takes_as_long_as_some_thousand_friendly_ones(one, other):
    friendly = parse("src/**/*.py"), parse("src/app/*/test_*.py")

    def best(pair, times):
        taken = []
        for _ in range(5):
            start = time.process_time()
            for _ in range(times):
                overlap(*pair, Budget(10**9))
            taken.append(time.process_time() - start)
        return min(taken) / times

    assert best((parse(one), parse(other)), 1) < 3000 * best(friendly, 100)


def test_a_call_that_compares_too_much_ends_with_an_error():
    one, other = (parse(text) for text in HOSTILE[1])
    budget = Budget(globs.STEPS)

    with pytest.raises(PatternTooComplex):
        for _ in range(globs.STEPS):
            overlap(one, other, budget)
