"""The tabs: what each of them shows, and what can be done to a row."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Raw, structs

from icctl.api import Error
from icd.app.verb import Column, Table
from icd.features.daemon.report import Report
from icd.top import held, work
from icd.top.projects import Project
from icd.top.rows import MOST, Row, Steps, Tab, field_of, required

# Rows of state whose payloads are asked for, and what is kept of each.
PAYLOADS, TEXT_BYTES = 100, 2000
# Cells from which on a screen has room for more columns.
WIDE = 110

# --- sessions, state, discoveries -----------------------------------------------------------------


def _sessions(project: Project) -> Steps[list[Row]]:
    (found,) = yield [("session.list", {"limit": MOST})]
    rows = [Row(project, (project.database, s.id, s.session_id), s) for s in required(found)]
    rows.sort(key=lambda row: row.of.ended_at is not None)
    return rows


SESSIONS = Table(
    Column("SESSION", field_of("session_id"), "id"),
    Column("STATE", lambda r: "active" if r.of.ended_at is None else "ended", "state"),
    Column("AGENT", field_of("agent_type")),
    Column("TIME", lambda r: (r.of.started_at, r.of.ended_at), "elapsed"),
    Column("TOKENS", lambda r: r.of.input_tokens + r.of.output_tokens, "number"),
    Column("DIRECTORY", field_of("project_dir"), "path"),
    Column("MODEL", field_of("model"), spare=True),
    empty="No sessions yet. Record one: icctl session start --session=ID",
)


def _state(project: Project) -> Steps[list[Row]]:
    """In the order of their names; the first ones with their payloads."""
    (names,) = yield [("state.list", {})]
    listed = required(names)[:MOST]
    found = yield [("state.get", {"key": n.key, "scope_id": n.scope_id}) for n in listed[:PAYLOADS]]
    rows = [_short(row) for row in found if row is not None and not isinstance(row, Error)]
    rows += listed[PAYLOADS:]
    return [Row(project, (project.database, row.key, row.scope_id), row) for row in rows]


def _short(row: Any) -> Any:
    """A payload may be a megabyte, and a line has room for less."""
    payload = bytes(row.payload)
    return (
        row
        if len(payload) <= TEXT_BYTES
        else structs.replace(row, payload=Raw(payload[:TEXT_BYTES]))
    )


def _if_known(name: str) -> Callable[[Row], Any]:
    return lambda row: getattr(row.of, name, None)


STATE = Table(
    Column("KEY", field_of("key")),
    Column("SCOPE", field_of("scope_id")),
    Column("UPDATED", _if_known("updated_at"), "age"),
    Column("PAYLOAD", _if_known("payload"), "json"),
    Column("EXPIRES", _if_known("expires_at"), "age", spare=True),
    empty="""No state yet. Store a row: icctl state set KEY SCOPE --value='{"a": 1}'""",
)


def _discoveries(project: Project) -> Steps[list[Row]]:
    (found,) = yield [("discovery.list", {"limit": MOST})]
    return [Row(project, (project.database, each.id), each) for each in required(found)]


DISCOVERIES = Table(
    Column("DISCOVERY", field_of("id"), "id"),
    Column("SCORE", field_of("relevance_score"), "score"),
    Column("STATE", field_of("status"), "state"),
    Column("FOUND", field_of("discovered_at"), "age", spare=True),
    Column("SOURCE", field_of("source")),
    Column("TITLE", field_of("title")),
    empty="No discoveries. Submit one: icctl discovery submit --source=S --title=T",
)

# --- failures -------------------------------------------------------------------------------------


def _failures(report: Report) -> list[Row]:
    """By script, the latest first."""
    return [Row(None, (row.caller, row.method), row) for row in report.failures_by_caller]


FAILURES = Table(
    Column("SCRIPT", field_of("caller"), "path"),
    Column("CALL", field_of("method"), "id"),
    Column("TIMES", field_of("count"), "number"),
    Column("LAST", field_of("last_at"), "age"),
    Column("ERROR", field_of("error"), "id"),
    Column("SENTENCE", field_of("sentence")),
    empty="No script has failed since the daemon was started.",
)

TABS = (
    *work.TABS,
    *held.TABS,
    Tab("Sessions", "Sess", SESSIONS, _sessions),
    Tab("State", "State", STATE, _state),
    Tab("Discoveries", "Disc", DISCOVERIES, _discoveries),
    Tab("Failures", "Fail", FAILURES, of_report=_failures),
)


def form_of(tab: Tab, names: dict[Project, str], width: int) -> Table:
    """The columns, and in front of them the project if there are several."""
    columns = list(tab.table.columns)
    if len(names) > 1:
        called = Column("PROJECT", lambda row: names.get(row.project, "-") if row.project else "-")
        columns.insert(0, called)
    if width >= WIDE:
        columns += tab.wide
    return Table(*columns, empty=tab.table.empty)


def in_order(rows: Iterable[Row], tab: Tab) -> list[Row]:
    """Those of several projects in one list."""
    found = [*rows]
    if tab.name == "Events":
        found.sort(key=lambda row: (row.of.at_ms, row.of.seq), reverse=True)
    return found
