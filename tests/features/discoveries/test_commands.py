"""discovery …: what is printed, and how words are read."""

import json

import pytest

from tests.support.submitted import vector

SUBMIT = ("discovery", "submit", "--source=exa", "--source-id=1", "--title=A title")


@pytest.fixture
def name(stdout):
    return stdout(*SUBMIT, "--score=0.7").strip()


def test_the_fields_of_a_discovery_stand_in_the_order_of_the_original(stdout, name):
    stdout("discovery", "promote", name, "--bead-id=b")
    stdout("discovery", "dismiss", name)

    shown = stdout("discovery", "status", name, "--json")

    assert list(json.loads(shown)) == [
        "id", "source", "source_id", "title", "raw_metadata", "relevance_score",
        "confidence_tier", "status", "bead_id", "discovered_at", "promoted_at", "reviewed_at",
        "base_score", "decay", "discovered_at_iso", "promoted_at_iso", "reviewed_at_iso",
    ]  # fmt: skip


def test_a_title_is_one_column_whatever_it_holds(stdout):
    words = [*SUBMIT[:4], "--title=a\tb\n\nc"]
    name = stdout(*words).strip()

    assert stdout("discovery", "status", name) == f"{name}\texa\ta b c\tnew\t0.00\tdiscard\n"
    assert json.loads(stdout("discovery", "status", name, "--json"))["title"] == "a\tb\n\nc"


def test_a_title_is_one_column_wherever_it_is_shown(stdout):
    one = {"v": vector(1.0)}
    stdout(*SUBMIT[:4], "--title=a\tb\nc", "--embedding=@v", files=one)

    shown = [stdout("discovery", "list"), stdout("discovery", "rank")]
    shown.append(stdout("discovery", "search", "--embedding=@v", files=one))

    assert [(text.count("\n"), text.split("\t")[2]) for text in shown] == [(1, "a b c")] * 3


@pytest.mark.parametrize("option", ["--title", "--summary", "--url"])
def test_a_text_that_is_too_long_is_refused(ic, option):
    refused = ic(*SUBMIT, f"{option}={'x' * 102_401}")

    assert refused.exit == 2
    assert b"a text of 102401 characters is too long (max 102400)" in refused.stderr


def test_an_empty_source_is_none_as_from_an_unset_variable(stdout):
    one = {"v": vector(1.0)}
    name = stdout(*SUBMIT, "--embedding=@v", files=one).strip()

    shown = [stdout("discovery", verb, "--source=") for verb in ("list", "rank")]
    shown.append(stdout("discovery", "search", "--embedding=@v", "--source=", files=one))

    assert [text.split("\t")[0] for text in shown] == [name] * 3


def test_what_could_end_a_script_element_is_escaped(stdout):
    name = stdout(*SUBMIT[:4], "--title=<b>&").strip()

    assert '"\\u003cb\\u003e\\u0026"' in stdout("discovery", "status", name, "--json")


def test_an_embedding_is_read_from_a_file_of_the_caller(stdout, ic):
    files = {"v.f32": vector(1.0, 2.0)}
    name = stdout(*SUBMIT, "--embedding=@v.f32", files=files).strip()

    again = ic(
        "discovery", "submit", "--source=exa", "--source-id=2", "--title=t",
        "--embedding=v.f32", "--dedup-threshold=1", files=files,
    )  # fmt: skip

    assert (again.exit, again.stdout) == (0, f"{name}\n".encode())
    warning = b"warning: v.f32 is read as a file; use --embedding=@v.f32\n"
    assert again.stderr == b"icctl: discovery submit: " + warning


def test_a_promotion_prints_the_bead_that_the_discovery_has(ic, stdout, name):
    assert stdout("discovery", "promote", name, "--bead-id=b-1") == f"promoted {name} → b-1\n"

    other = ic("discovery", "promote", name, "--bead-id=b-2")

    assert (other.exit, other.stdout) == (1, b"")
    assert other.stderr.startswith(
        f"icctl: discovery promote: {name} is already promoted, to b-1;".encode()
    )


@pytest.mark.parametrize("age", ["86400", "24h", "1d", "1440m"])
def test_an_age_is_seconds_or_a_duration(ic, name, clock, age):
    clock.wall_ms += 86_400_000
    assert ic("discovery", "decay", "--rate=0.1", f"--min-age={age}").stdout == b"0 decayed\n"

    clock.wall_ms += 1

    assert ic("discovery", "decay", "--rate=0.1", f"--min-age={age}").stdout == b"1 decayed\n"


@pytest.mark.parametrize("score", ["0", "1", "0.5", ".5", "1.", "5e-1", "+0.25"])
def test_a_score_may_be_written_in_any_usual_way(stdout, name, score):
    shown = stdout("discovery", "score", name, f"--score={score}")

    assert shown.startswith(f"scored {name}: {float(score):.2f} (")


@pytest.mark.parametrize("score", ["", "x", "nan", "inf", "1_0", "1.01", "-0.5", "0,5", "1e999"])
def test_anything_else_is_a_mistake(ic, name, score):
    refused = ic("discovery", "score", name, f"--score={score}")

    assert refused.exit == 3


def test_a_file_is_submitted_by_the_callers_own_process(stdout, project):
    lines = project / "lines"
    lines.write_text('{"source_id":"1","title":"t"}\n{"source_id":"1","title":"t"}\n')

    said = stdout("discovery", "submit", "--from=lines", "--source=exa")

    (first, new), (second, duplicate) = (line.split("\t") for line in said.splitlines())
    assert (first == second, new, duplicate) == (True, "new", "duplicate")
    shown = json.loads(stdout("discovery", "submit", "--from=lines", "--source=exa", "--json"))
    assert shown == {
        "deduped": 0, "duplicate": 2, "file": str(lines), "new": 0,
        "verdicts": [{"id": first, "verdict": "duplicate"}] * 2,
    }  # fmt: skip


# --- decay: a rate is lost, a factor is left --------------------------------------------------


@pytest.mark.parametrize(
    "option, score, told",
    [
        ("--rate=0.1", 0.72, "by 0.9 (--rate=0.1)"),
        ("--factor=0.9", 0.72, "by 0.9 (--rate=0.1)"),
        ("--rate=0.9", 0.08, "by 0.1 (--rate=0.9)"),
        ("--factor=0.1", 0.08, "by 0.1 (--rate=0.9)"),
        ("--factor=0.9999995", 0.8, ""),
    ],
)
def test_a_rate_is_what_is_lost_and_a_factor_what_is_left(ic, clock, option, score, told):
    made = ("discovery", "submit", "--source=s", "--source-id=1", "--title=t", "--score=0.8")
    name = ic(*made).stdout.decode().strip()
    clock.wall_ms += 2 * 86_400_000

    output = ic("discovery", "decay", option)

    shown = json.loads(ic("discovery", "status", name, "--json").stdout)
    assert shown["relevance_score"] == pytest.approx(score)
    assert output.stdout in (b"1 decayed\n", b"0 decayed\n")
    assert (told in output.stderr.decode()) if told else not output.stderr


@pytest.mark.parametrize("options", [[], ["--rate=0.1", "--factor=0.9"], ["--factor=1.1"]])
def test_decay_needs_one_of_rate_and_factor(ic, options):
    output = ic("discovery", "decay", *options)

    assert output.exit == 3
    assert output.stdout == b""


def test_decay_as_json_says_nothing_else(ic):
    output = ic("discovery", "decay", "--factor=0.9", "--json")

    assert (output.stdout, output.stderr) == (b'{"decayed":0}\n', b"")
