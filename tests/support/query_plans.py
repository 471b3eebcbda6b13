"""How SQLite would run a statement."""

import re


def plan(conn, statement):
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    names = re.findall(r":(\w+)", statement)
    values = dict.fromkeys(names) or [None] * (max(numbers) if numbers else statement.count("?"))
    return [detail for *_, detail in conn.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
