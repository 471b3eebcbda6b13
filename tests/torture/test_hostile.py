"""Hostile input does no harm, and the suite notices where it would."""

import random
from pathlib import Path

import pytest

from tests.torture import hostile
from tests.torture.code import broken
from tests.torture.mutators import mutated
from tests.torture.suite import SHORT_SEED, Broken, Run

SECONDS = 9.0
# What a mutation is given to be found: it takes a second or two.
PATIENCE_SECONDS = 60.0


def test_hostile_input_does_no_harm(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"again with: make torture SUITES=hostile SEED={run.seed} SECONDS={SECONDS}")

    hostile.run(run)

    assert len(run.figures) == len(hostile.WAYS)


MUTATIONS: dict[str, tuple[str, str, str, str]] = {
    "a decoder lets an exception escape": (
        "decoders",
        "icd/server/keyhole.py",
        "if not digits.isdigit() or len(digits) > 15:",
        "if len(digits) > 15:",
    ),
    "a session dies of a line": (
        "socket",
        "icd/server/jsonrpc.py",
        "        return method, decoder.decode(raw)\n    except (msgspec.DecodeError,",
        "        return method, decoder.decode(raw)\n    except (ZeroDivisionError,",
    ),
    "what is refused is written": (
        "socket",
        "icd/rpc/dispatch.py",
        '            answer = self._run(call)\n            self._conn.execute("COMMIT")\n        except Exception as exc:  # noqa: BLE001 -- the error map\n            self._roll_back()',
        '            answer = self._run(call)\n            self._conn.execute("COMMIT")\n        except Exception as exc:  # noqa: BLE001 -- the error map\n            if self._conn.in_transaction:\n                self._conn.execute("COMMIT")',
    ),
}


@pytest.mark.parametrize("what", MUTATIONS)
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
