"""`icctl run tokens`, `icctl run budget`."""

import json

import pytest

from tests.support import rows


@pytest.fixture
def use(conn):
    def used(tokens_in, tokens_out, cache):
        rows.dispatch(conn, "run00001", None)
        conn.execute(
            "UPDATE dispatches SET input_tokens = ?, output_tokens = ?, cache_hits = ?",
            (tokens_in, tokens_out, cache),
        )

    return used


@pytest.fixture
def budgeted(conn, use):
    def run(used):
        rows.run(conn, token_budget=1000)
        use(used, 0, None)

    return run


def test_tokens_are_labelled_lines(stdout, use):
    use(1000, 200, 500)

    assert stdout("run", "tokens", "run00001") == (
        "Run: run00001\n"
        "  Input tokens:  1000\n"
        "  Output tokens: 200\n"
        "  Cache hits:    500\n"
        "  Cache ratio:   33.3%\n"
        "  Total tokens:  1200\n"
    )


def test_tokens_as_json(stdout, use):
    use(300, 1, 100)

    assert stdout("run", "tokens", "run00001", "--json") == (
        '{"cache_hits":100,"cache_ratio":25,"input_tokens":300,"output_tokens":1,'
        '"run_id":"run00001","total_tokens":301}\n'
    )


def test_tokens_of_an_unknown_run_are_zeros(stdout):
    assert stdout("run", "tokens", "nobody") == (
        "Run: nobody\n"
        "  Input tokens:  0\n"
        "  Output tokens: 0\n"
        "  Cache hits:    0\n"
        "  Total tokens:  0\n"
    )
    assert "cache_ratio" not in json.loads(stdout("run", "tokens", "nobody", "--json"))


@pytest.mark.parametrize(
    ("used", "percent", "status"),
    [(799, "79.9", "OK"), (800, "80.0", "WARNING"), (5000, "500.0", "EXCEEDED")],
)
def test_a_budget_is_labelled_lines(ic, budgeted, used, percent, status):
    budgeted(used)

    output = ic("run", "budget", "run00001")

    assert output.stderr == b""
    assert output.stdout.decode() == (
        "Run: run00001\n"
        "  Budget:    1000 tokens\n"
        f"  Used:      {used} tokens ({percent}%)\n"
        "  Warn at:   80%\n"
        f"  Status:    {status}\n"
    )


@pytest.mark.parametrize(("used", "exit_code"), [(799, 0), (800, 0), (1000, 1), (5000, 1)])
def test_that_a_budget_is_used_up_does_not_wear_off(ic, budgeted, used, exit_code):
    budgeted(used)

    outputs = [ic("run", "budget", "run00001") for _ in range(3)]

    assert [output.exit for output in outputs] == [exit_code] * 3
    assert outputs[0].stdout == outputs[2].stdout


def test_a_budget_as_json(ic, conn, use):
    rows.run(conn, token_budget=1000)
    use(1000, 500, None)

    output = ic("run", "budget", "run00001", "--json")

    assert output.exit == 1
    assert output.stdout == (
        b'{"budget":1000,"exceeded":true,"run_id":"run00001","usage_pct":150,"used":1500,'
        b'"warn_pct":80,"warning":false}\n'
    )


@pytest.mark.parametrize("run_id", ["run00001", "nobody"])
def test_no_budget_and_no_run_are_no_failure(stdout, conn, run_id):
    rows.run(conn)

    assert stdout("run", "budget", run_id) == f"Run {run_id}: no budget set\n"
    assert stdout("run", "budget", run_id, "--json") == (
        f'{{"budget":null,"message":"no budget set","run_id":"{run_id}"}}\n'
    )


@pytest.mark.parametrize("verb", ["tokens", "budget"])
def test_a_run_has_to_be_named(ic, verb):
    assert ic("run", verb).exit == 3
