"""Chains of phases, and where they lead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd.errors import InvalidChain, UnknownPhase
from icd.features.runs import phases

NAMES = st.text("abcXYZ019_-", min_size=1, max_size=8)
CHAINS = st.lists(NAMES, min_size=2, max_size=12, unique=True).map(tuple)


def test_the_default_chain_is_that_of_the_original():
    assert len(phases.DEFAULT) == 9
    assert (phases.DEFAULT[0], phases.DEFAULT[-1]) == ("brainstorm", "done")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "need at least 2 phases, got 0"),
        ('["a"]', "need at least 2 phases, got 1"),
        ('["a","b","a"]', 'duplicate phase "a"'),
        ('["a","b c"]', 'invalid phase name "b c" (must match [a-zA-Z0-9_-]+)'),
        ('["a","b\\n"]', "invalid phase name"),
        ('["a",""]', 'invalid phase name ""'),
        ('["a","é"]', "invalid phase name"),
        ('["a",7]', "Expected `str`"),
        ("7", "Expected `array`"),
        ("nonsense", "malformed"),
        ('["a","' + "b" * 101 + '"]', "longer than 100 characters"),
        ("[" + ",".join(f'"p{n}"' for n in range(101)) + "]", "at most 100 phases, got 101"),
    ],
)
def test_what_is_no_chain_is_refused_with_its_reason(text, sentence):
    with pytest.raises(InvalidChain) as refused:
        phases.parse(text)

    assert refused.value.message.startswith("parse phase chain: ")
    assert sentence in refused.value.message
    assert refused.value.exit == 3


@given(chain=CHAINS, data=st.data())
def test_whatever_is_skipped_every_chain_is_walked_to_its_end(chain, data):
    skipped = data.draw(st.sets(st.sampled_from(chain)))
    walked = [chain[0]]

    while (following := phases.ahead(chain, walked[-1], skipped)) is not None:
        walked.append(following)

    assert walked[-1] == chain[-1]
    assert [p for p in chain if p in walked] == walked
    assert not (set(walked[1:-1]) & skipped)


@given(chain=CHAINS, data=st.data())
def test_between_is_what_lies_after_the_first_through_the_second(chain, data):
    a = data.draw(st.integers(0, len(chain) - 1))
    b = data.draw(st.integers(0, len(chain) - 1))

    assert phases.between(chain, chain[a], chain[b]) == list(chain[a + 1 : b + 1])


def test_a_phase_outside_the_chain_leads_nowhere():
    with pytest.raises(UnknownPhase) as unknown:
        phases.ahead(("a", "b"), "c", ())

    assert unknown.value.exit == 2
