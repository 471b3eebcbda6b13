"""The client's hot path does not grow unnoticed: instructions are counted, so noise is no excuse."""

import json

import pytest

from tests.bench import instructions
from tests.bench.instructions import COMMITTED, LIMIT, Count, parse

pytestmark = pytest.mark.long

PROFILE = """\
version: 1
positions: line
events: Ir
ob=/tmp/p/icctl
fl=client.c
fn=main
10 5
cob=/lib/libc.so.6
cfn=write
calls=1 0
11 900
12 7

ob=/lib/libc.so.6
fn=write
0 900
totals: 912
"""


def test_only_what_runs_in_our_own_object_counts():
    found = parse(PROFILE, "/tmp/p/icctl")

    assert found == Count(own=12, total=912)


def test_the_hot_path_takes_no_more_instructions_than_were_committed():
    """Meant to cost more?  Count anew: python -m tests.bench.instructions --update"""
    if instructions.missing():
        pytest.skip(instructions.missing())
    committed, here = json.loads(COMMITTED.read_text()), instructions.surroundings()
    known = {name: committed[name] for name in here}
    if here != known:
        pytest.skip(f"counted with {known}, and here is {here}: see tests/bench/instructions.py")

    counts = instructions.count(runs=3)

    least = min(count.own for count in counts)
    assert least <= LIMIT * committed["instructions"], (
        f"{least} instructions, {committed['instructions']} are committed; "
        "if it is meant: python -m tests.bench.instructions --update"
    )
