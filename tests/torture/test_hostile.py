"""Hostile input does no harm, and the suite notices where it would."""

import random
from pathlib import Path

import pytest

from tests.torture import fuzzer, hostile
from tests.torture.code import broken
from tests.torture.mutators import mutated
from tests.torture.suite import SHORT_SEED, Broken, Run

pytestmark = pytest.mark.long

SECONDS = 6.0
# What a mutation is given to be found: it takes a second or two.
PATIENCE_SECONDS = 60
# Inputs of each kind, those of tests/data among them: a second or two.
RUNS = 1000
needs_atheris = pytest.mark.skipif(
    not fuzzer.is_there(), reason="no atheris for this machine: pip found none to install"
)
BLACK_BOXES = ("socket", "commands", "library")


def test_hostile_input_does_no_harm(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"again with: make torture SUITES=hostile SEED={run.seed} SECONDS={SECONDS}")

    hostile.run(run, BLACK_BOXES)

    assert len(run.figures) == len(BLACK_BOXES)


@needs_atheris
def test_no_decoder_is_harmed_by_what_a_fuzzer_finds(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)

    with fuzzer.Fuzzer(run) as found:
        executed = [found.fuzz(kind, PATIENCE_SECONDS, RUNS) for kind in fuzzer.KINDS]

    assert min(executed) >= RUNS


@pytest.mark.parametrize("kind", fuzzer.KINDS)
def test_inputs_that_were_found_once_do_no_harm_without_a_fuzzer(kind: str, tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)

    fuzzer.replay(run, kind)

    assert run.figures["inputs decoded"] == len(files(kind))


def files(kind: str) -> list[Path]:
    return [file for place in fuzzer.places(kind) for file in place.iterdir()]


MUTATIONS: dict[str, tuple[str, str, str, str]] = {
    "a decoder lets an exception escape": (
        "decoders",
        "icd/server/net/argv_frame.py",
        "if not digits.isdigit() or len(digits) > 15:",
        "if len(digits) > 15:",
    ),
    "a set of a pattern is read beyond its end": (
        "decoders",
        "icd/features/coordination/globs.py",
        "    if at >= len(name):\n        raise",
        "    if at > len(name):\n        raise",
    ),
    "a session dies of a line": (
        "socket",
        "icd/server/net/jsonrpc.py",
        "(msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:\n        raw =",
        "ZeroDivisionError as exc:\n        raw =",
    ),
    "what is refused is written": (
        "socket",
        "icd/app/dispatch.py",
        "            answer = self._run(call)\n            self._commit()\n        except BaseException:\n            self._roll_back()",
        '            answer = self._run(call)\n            self._commit()\n        except BaseException:\n            if self._conn.in_transaction:\n                self._conn.execute("COMMIT")',
    ),
    "a client does not expect bytes that are no text": (
        "commands",
        "icctl/client.py",
        '*(b"a" + word.encode(encoding, "surrogateescape") for word in argv),',
        '*(b"a" + word.encode(encoding) for word in argv),',
    ),
    "a name is read by the shell once more": (
        "library",
        "lib-intercore.sh",
        '    _intercore_call "$_intercore_to" state get -- "$@" || _intercore_status=$?',
        '    eval "_intercore_call $_intercore_to state get -- $*" || _intercore_status=$?',
    ),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=needs_atheris if way == "decoders" else ())
        for what, (way, *_) in MUTATIONS.items()
    ],
)
def test_harm_that_is_done_on_purpose_is_noticed(tmp_path: Path, what: str) -> None:
    way, file, old, new = MUTATIONS[what]
    code = broken(tmp_path, file, old, new)
    run = Run(tmp_path / "run", PATIENCE_SECONDS, SHORT_SEED, code=code)

    with pytest.raises(Broken):
        hostile.run(run, (way,))


def test_the_same_seed_makes_the_same_inputs() -> None:
    corpus = [b"ic1 1\0aping\0", b'{"a":[1]}']

    one, other = (
        [mutated(rng, corpus) for _ in range(200)] for rng in (random.Random(7), random.Random(7))
    )

    assert one == other
    assert len(set(one)) > 100
