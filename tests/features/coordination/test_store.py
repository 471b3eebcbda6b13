"""Reservations: never two owners of one path, unless both share it; nothing dead is in the way."""

import itertools
import json
import os
import subprocess

import pytest

from icd.errors import IcError, InvalidPattern, PatternTooComplex
from icd.features.coordination import globs, lookup, names, store
from icd.features.coordination.names import Place
from icd.features.coordination.records import Wish
from icd.features.events import store as events
from icd.values import processes
from icd.values.processes import Process, Writer

NOW = 1_800_000_000_123
MINUTE = 60_000
ME = Writer(pid=41, session="session-a")
HERE = Place("/p", "/p")


def glob(text):
    return names.pattern(text, HERE)


@pytest.fixture
def reserve(conn):
    def reserved(owner, pattern, *, now_ms=NOW, **more):
        wish = Wish(owner, more.pop("scope", "."), glob(pattern), **more)
        return store.reserve(conn, wish, actor=ME, now_ms=now_ms)

    return reserved


@pytest.fixture
def held(conn):
    """Who holds a pattern, for everybody else."""

    def blockers(pattern, *, now_ms=NOW, **more):
        found = lookup.blockers(conn, ".", glob(pattern), now_ms=now_ms, **more)
        return [lock.owner for lock in found]

    return blockers


@pytest.fixture
def told(conn):
    def log():
        found = events.read(conn, limit=1000, source="coordination")
        return [(event.type, json.loads(bytes(event.payload))["owner"]) for event in found]

    return log


def test_what_overlaps_is_refused_and_names_what_is_in_the_way(reserve, told):
    lock, _ = reserve("ann", "src/**/*.py")

    nothing, blocker = reserve("bob", "src/a/b.py")

    assert (nothing, blocker.id) == (None, lock.id)
    assert told() == [("acquired", "ann"), ("conflict", "bob")]


@pytest.mark.parametrize(("one", "other"), [*itertools.product([True, False], repeat=2)])
def test_only_two_that_share_go_together(reserve, one, other):
    reserve("ann", "a", exclusive=one)

    lock, _ = reserve("bob", "a", exclusive=other)

    assert (lock is not None) is (not one and not other)


def test_another_scope_is_another_world(reserve, held):
    reserve("ann", "a", scope="api")

    assert held("a") == []
    assert reserve("bob", "a")[0] is not None


def test_the_same_again_keeps_its_id_and_never_ends_earlier(reserve, told):
    lock, _ = reserve("ann", "a", ttl_ms=MINUTE)

    again, _ = reserve("ann", "a", ttl_ms=1000)

    assert (again.id, again.expires_ms) == (lock.id, lock.expires_ms)
    assert told() == [("acquired", "ann"), ("renewed", "ann")]


def test_what_has_expired_is_in_nobodys_way_and_is_swept(reserve, held, told):
    reserve("ann", "a/*", ttl_ms=MINUTE)

    assert held("a/b", now_ms=NOW + MINUTE - 1) == ["ann"]
    assert held("a/b", now_ms=NOW + MINUTE) == []
    assert reserve("bob", "a/b", now_ms=NOW + MINUTE)[0] is not None
    assert told() == [("acquired", "ann"), ("expired", "ann"), ("acquired", "bob")]


def test_what_was_taken_over_does_not_come_back_with_the_clock(reserve, held):
    for number in range(20):  # more than are swept at once
        reserve("cy", f"other/{number}", ttl_ms=1)
    reserve("ann", "a/*", ttl_ms=MINUTE)
    reserve("bob", "a/b", now_ms=NOW + MINUTE)

    assert held("a/*", now_ms=NOW) == ["bob"]


def test_what_had_ended_does_not_come_back_beside_a_transfer(conn, reserve, held):
    reserve("ann", "a", ttl_ms=MINUTE)
    reserve("ann", "*")

    locks = lookup.of_owner(conn, "ann", ".")
    store.transfer(conn, locks, "bob", actor=ME, now_ms=NOW + MINUTE)

    assert held("a", now_ms=NOW) == ["bob"]


def test_a_reservation_ends_with_its_process(reserve, held):
    child = subprocess.Popen(["sleep", "60"])
    reserve("ann", "a", process=processes.identify(child.pid))
    assert held("a") == ["ann"]

    child.kill()
    child.wait()

    assert held("a") == []
    assert reserve("bob", "a")[0] is not None


def test_a_process_that_cannot_be_looked_at_counts_as_alive(reserve, held):
    reserve("ann", "a", process=Process(1, 1, "", "another-namespace"))

    assert held("a") == ["ann"]


@pytest.fixture
def child():
    """A process, and its end."""
    found = subprocess.Popen(["sleep", "60"])
    yield processes.identify(found.pid), lambda: (found.kill(), found.wait())
    found.kill()
    found.wait()


def test_what_two_processes_of_an_owner_reserve_ends_with_the_last_of_them(reserve, held, child):
    process, end = child
    other = subprocess.Popen(["sleep", "60"])
    reserve("ann", "a", process=process)
    reserve("ann", "a", process=processes.identify(other.pid))

    end()
    assert held("a") == ["ann"]

    other.kill()
    other.wait()
    assert held("a") == []


def test_what_ends_with_no_process_outlives_the_process_of_its_owner(reserve, held, child):
    process, end = child
    with_process, _ = reserve("ann", "a", process=process)
    without, _ = reserve("ann", "a", ttl_ms=MINUTE)

    end()

    assert without.id != with_process.id
    assert (held("a"), held("a", now_ms=NOW + MINUTE)) == (["ann"], [])


def test_the_same_of_the_same_process_keeps_its_id_and_what_is_gone_goes(conn, reserve, child):
    process, end = child
    lock, _ = reserve("ann", "a", process=process)
    assert reserve("ann", "a", process=process)[0].id == lock.id

    end()
    again, _ = reserve("ann", "a", process=processes.identify(os.getpid()))

    assert [lock.id for lock in lookup.every(conn)] == [again.id]


def test_a_transfer_gives_what_stands(conn, reserve, held, told):
    reserve("ann", "a")
    reserve("ann", "b", ttl_ms=1)

    locks = lookup.of_owner(conn, "ann", ".")
    assert store.transfer(conn, locks, "bob", actor=ME, now_ms=NOW + 1) == 1

    assert held("**", now_ms=NOW + 1) == ["bob"]
    assert told()[-1] == ("transferred", "bob")


def test_a_release_counts_what_stood(conn, reserve, held):
    reserve("ann", "a")
    reserve("ann", "b", ttl_ms=1)

    locks = lookup.of_owner(conn, "ann", None)
    assert store.release(conn, locks, actor=ME, now_ms=NOW + 1) == 1

    assert (held("**"), lookup.every(conn)) == ([], [])


def test_many_paths_get_the_answers_that_each_alone_gets(conn, reserve, held):
    for number, text in enumerate(["src/*.py", "**/x.md", "*", "docs/", "a/b", "[!a]/b", "**/q*"]):
        reserve(f"o{number}", text, exclusive=False)
    paths = ["src/a.py", "src/a.md", "x.md", "d/x.md", "docs/a/b", "a/b", "b/b", "z", "q", "k/q/r"]

    asked = [(path, names.path(path, HERE)) for path in paths]
    found = lookup.check_many(conn, ".", asked, but="o2", now_ms=NOW)

    alone = {path: held(path, but="o2") for path in paths}
    assert {path for path, _ in found} == {path for path in paths if alone[path]}
    assert all(lock.owner in alone[path] for path, lock in found)


def test_every_kind_of_pattern_is_found_by_every_other(conn, reserve, held):
    """The index leaves nothing out: compared with a look at all rows."""
    texts = ["a", "a/b", "a/b/c", "a/*", "a/**", "*", "**", "*/b", "**/b", "a*", "?/b", "*b*", "ab",
             "a/b*", "**/c", "[ab]/**/c", "\\*b", "a/\\*", "/x/y", "/x/*"]  # fmt: skip
    for text in texts:
        reserve(text, text, exclusive=False)

    for text in texts:
        wanted = {
            other for other in texts if globs.overlap(glob(text), glob(other), globs.Budget())
        }
        assert set(held(text)) == wanted, text


# --- which file is meant ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("src/a.py", "src/a.py"),
        ("./src//a.py", "src/a.py"),
        ("/p/src/../a.py", "a.py"),
        ("/p", "**"),
        (".", "**"),
        ("src/", "src/**"),
        ("src/**/**/a", "src/**/a"),
        ("/etc/hosts", "/etc/hosts"),
        ("../q/a", "/q/a"),
    ],
)
def test_one_file_has_one_spelling(text, stored):
    assert names.pattern(text, HERE).text == stored


def test_a_worktree_has_files_of_its_own():
    there = Place("/p", "/w")

    assert names.pattern("src/a.py", there).text == "/w/src/a.py"
    assert names.pattern("/p/src/a.py", there).text == "src/a.py"
    assert names.pattern("src/a.py", Place("/p", "/p/.worktrees/w")).text == ".worktrees/w/src/a.py"


def test_a_project_that_is_reached_by_a_link_is_the_same_project(tmp_path):
    """As in `$PWD`: a link to the project, one above it, and one into it."""
    root = tmp_path / "real" / "p"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "above").symlink_to(root.parent)
    (tmp_path / "into").symlink_to(root / "src")
    database = str(root / ".clavain" / "intercore.db")

    for cwd in (root, tmp_path / "link", tmp_path / "above" / "p", tmp_path / "into"):
        here = names.place(database, str(cwd))
        assert names.pattern("src/a*", here).text == "src/a*"
        assert names.path(f"{tmp_path}/link/src/[a]", here).text == r"src/\[a]"
        assert names.pattern(f"{tmp_path}/above/p/", here).text == "**"
        assert names.scope_of(f"{tmp_path}/link/", here) == "."
        assert names.path(f"{tmp_path}/elsewhere", here).text == f"{tmp_path}/elsewhere"


def test_a_worktree_that_is_reached_by_a_link_is_the_same_worktree(tmp_path):
    (tmp_path / "w" / ".git").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "w")

    here = names.place("/p/.clavain/intercore.db", str(tmp_path / "link"))

    assert names.pattern("a", here).text == f"{tmp_path}/w/a"
    assert names.path(f"{tmp_path}/link/a", here).text == f"{tmp_path}/w/a"


def test_a_link_inside_of_a_project_is_a_name_like_others(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "again").symlink_to(tmp_path)

    here = Place(str(tmp_path), str(tmp_path))

    assert names.path("again/src/a", here).text == "again/src/a"


@pytest.mark.parametrize("text", ["", "a\tb", "*/../a", "/**", "/*/src/a", "x" * 5000, "a\udcff"])
def test_what_is_no_pattern_of_a_project_is_refused(text):
    with pytest.raises(IcError):
        names.pattern(text, HERE)


def test_a_project_whose_name_has_wildcards_is_a_project():
    here = Place("/p[1]*", "/p[1]*")

    assert names.pattern("/p[1]*/a?", here).text == "a?"
    assert names.path("/p[1]*/a?", here).text == r"a\?"
    assert names.pattern("b", here).text == "b"


# --- what a review found ---


def test_the_last_character_that_there_is_hides_no_path(reserve, held):
    reserve("ann", "src/\U0010ffffx")

    assert held("src/*") == ["ann"]


@pytest.mark.parametrize("spelled", [r"/\p/x", "/[p]/x"])
def test_a_path_inside_is_inside_however_it_is_spelled(spelled):
    assert names.pattern(spelled, HERE).text == "x"


@pytest.mark.parametrize("name", ["/", "/p/../"])
def test_what_is_inside_and_outside_at_once_is_refused(name):
    with pytest.raises(InvalidPattern):
        names.path(name, Place("/p/q", "/p/q"))


@pytest.mark.parametrize("text", [r"\./k", "[.]/k", r"a/\.\."])
def test_an_escaped_dot_is_no_other_name_of_a_file(text):
    with pytest.raises(InvalidPattern):
        glob(text)


def test_large_sets_use_the_budget_up_instead_of_time():
    one, other = (
        glob("[" + "".join(chr(0x4E00 + 2 * n + k) for n in range(500)) + "]*") for k in (0, 1)
    )

    with pytest.raises(PatternTooComplex):
        for _ in range(100):
            globs.overlap(one, other, budget := globs.Budget(globs.STEPS // 10))
            for _ in range(20):
                globs.overlap(one, other, budget)


def test_a_commit_of_thousands_is_judged_beside_patterns_with_wildcards(conn, reserve):
    for number in range(3):
        reserve("ann", f"**/test_{number}*.py")
    reserve("ann", "src/held.py")
    paths = [*(f"src/package_{n % 50}/module_{n}.py" for n in range(5000)), "src/held.py"]

    asked = [(path, names.path(path, HERE)) for path in paths]
    found = lookup.check_many(conn, ".", asked, but="bob", now_ms=NOW)

    assert [path for path, _ in found] == ["src/held.py"]


def test_a_line_break_in_a_name_is_stored_as_it_can_be_imported():
    names.check_stored(names.path("a\nb", HERE).text)
