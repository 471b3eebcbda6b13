"""What a program is said to have used is its own."""

import os

from tests.bench.submissions import used


def test_the_memory_of_a_program_is_not_that_of_the_process_that_started_it(tmp_path):
    large = bytearray(os.urandom(1)) * (200 * 1024 * 1024)

    _, mebibytes = used(["/bin/true"], cwd=tmp_path, env={})

    assert len(large) > 0
    assert 0 < mebibytes < 100
