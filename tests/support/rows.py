"""Rows of runs and what belongs to them, written as they are stored."""

import sqlite3

NOW = 1_800_000_000


def add(conn: sqlite3.Connection, table: str, **columns: object) -> None:
    names = ", ".join(columns)
    marks = ", ".join("?" for _ in columns)
    conn.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))


def run(conn: sqlite3.Connection, run_id: str = "run00001", **columns: object) -> str:
    defaults = {
        "id": run_id,
        "project_dir": "/project",
        "goal": "goal",
        "status": "active",
        "phase": "brainstorm",
        "complexity": 3,
        "force_full": 0,
        "auto_advance": 1,
        "auto_spawn": 0,
        "budget_warn_pct": 80,
        "budget_told": 0,
        "created_at": NOW,
        "created_ms": NOW * 1000,
        "updated_at": NOW,
        "updated_ms": NOW * 1000,
    }
    add(conn, "runs", **(defaults | columns))
    return run_id


def lane(conn: sqlite3.Connection, name: str) -> None:
    made = {"id": f"id-{name}", "name": name, "lane_type": "arc", "status": "active"}
    texts = {"description": "", "intent": "", "metadata": "{}"}
    times = {"created_at": NOW, "updated_at": NOW, "updated_ms": NOW * 1000}
    add(conn, "lanes", **made, **texts, **times)


def skip(conn: sqlite3.Connection, run_id: str, phase: str) -> None:
    add(conn, "run_skips", run_id=run_id, phase=phase, reason="", created_at=NOW)


def artifact(
    conn: sqlite3.Connection, run_id: str, phase: str, artifact_id: str, status: str = "active"
) -> None:
    add(
        conn,
        "run_artifacts",
        id=artifact_id,
        run_id=run_id,
        phase=phase,
        path="file",
        type="file",
        status=status,
        created_at=NOW,
    )


def agent(conn: sqlite3.Connection, run_id: str, agent_id: str, status: str = "active") -> None:
    add(
        conn,
        "run_agents",
        id=agent_id,
        run_id=run_id,
        agent_type="claude",
        status=status,
        created_at=NOW,
        updated_at=NOW,
    )


def dispatch(
    conn: sqlite3.Connection,
    run_id: str | None,
    verdict: str | None,
    dispatch_id: str = "dispatch",
    scope_id: str | None = None,
) -> None:
    counts = dict.fromkeys(("turns", "commands", "messages", "input_tokens", "output_tokens"), 0)
    add(
        conn,
        "dispatches",
        id=dispatch_id,
        run_id=run_id,
        scope_id=scope_id,
        agent_type="codex",
        status="completed",
        project_dir="/project",
        verdict_status=verdict,
        created_at=NOW,
        created_ms=NOW * 1000,
        version=1,
        **counts,
    )
