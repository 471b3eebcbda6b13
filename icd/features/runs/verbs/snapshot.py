"""run snapshot: everything about a run in one call, read in one transaction.

Nothing in it contradicts the rest.  Of each kind of row the newest MOST are read, the oldest first,
so that no run, however long it lasts, makes an answer that no process can hold; `cut` names the
kinds of which there is more.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.verb import Argument, Command, Method, Option, narrow
from icd.errors import IcError, RunOver, Usage
from icd.features.dispatches import store as dispatch_store
from icd.features.dispatches.store import Dispatch
from icd.features.gates import store as gates
from icd.features.gates.store import Evidence
from icd.features.gates.verbs import show_condition
from icd.features.runs import budget as budgets
from icd.features.runs import history, store, transitions
from icd.features.runs.budget import Budget, Tokens
from icd.features.runs.history import PhaseEvent
from icd.features.runs.store import Agent, Artifact, Document, Run
from icd.features.runs.verbs import Project, project_of
from icd.values.wire import Result

T = TypeVar("T")

# Rows of each kind: far beyond a run's usual life, and a few megabytes at most.
MOST = 5_000
SHOWN = 10  # rows of each kind, the newest: a screen holds no more; --json has them all
_LABEL = 12  # columns


class Take(Params):
    """Print a run with its history, agents, artifacts, dispatches, tokens, budget and gate.

    Everything is read in one transaction, so that it is consistent.
    With --current, exit 1 if the project has no active run.
    The text shows the newest ten of each kind; --json shows all.
    """

    rpc = (
        "Return a run with its history, agents, artifacts, dispatches, tokens, budget and "
        "gate.\n"
        "Everything is read in one transaction, so that it is consistent.\n"
        "Without `run_id`, it is the newest active run of the project, or null if there is "
        "none."
    )
    run_id: Annotated[
        str | None,
        Argument("RUN", "Id of the run (default: the newest active run of the project)."),
    ] = None
    project: Project = None


class TakeForm(Take):
    __doc__ = Take.__doc__

    current: Annotated[bool, Option("--current", "Use the newest active run of the project.")] = (
        False
    )
    svg: Annotated[
        bool, Option("--svg", "Print the timeline of its phases as a picture (SVG).")
    ] = False


class Gate(Result):
    """Whether the run may go on to its next phase; `error` says why that cannot be told, such as
    rules of a newer program, and the result is then `unknown`."""

    from_phase: str
    to_phase: str
    result: str
    tier: str
    evidence: Raw | UnsetType = UNSET
    error: str = ""


class Snapshot(Result):
    """`gate` is null for a run that goes nowhere any more; `cut` names the lists of which only the
    newest rows are here."""

    run: Document
    events: list[PhaseEvent]
    agents: list[Agent]
    artifacts: list[Artifact]
    dispatches: list[Dispatch]
    tokens: Tokens
    budget: Budget
    gate: Gate | None
    cut: list[str]


def take(ctx: Context, p: Take) -> Snapshot | None:
    """None: no run of that project is active."""
    if p.run_id is not None:
        return read(ctx.conn, store.require(ctx.conn, p.run_id))
    run = store.current(ctx.conn, project_of(ctx, p.cwd, p.project))
    return None if run is None else read(ctx.conn, run)


def read(conn: sqlite3.Connection, run: Run) -> Snapshot:
    events = history.newest_of_run(conn, run.id, limit=MOST + 1)
    at_work = store.agents_of(conn, run.id, newest=MOST + 1)
    produced = store.artifacts_of(conn, run.id, newest=MOST + 1)
    started = dispatch_store.every(conn, run_id=run.id, limit=MOST + 1)[::-1]
    every: dict[str, Sized] = {
        "events": events,
        "agents": at_work,
        "artifacts": produced,
        "dispatches": started,
    }
    return Snapshot(
        run=store.in_full(conn, run),
        events=events[-MOST:],
        agents=at_work[-MOST:],
        artifacts=produced[-MOST:],
        dispatches=started[-MOST:],
        tokens=budgets.tokens(conn, run.id),
        budget=budgets.of_run(conn, run),
        gate=_gate(conn, run),
        cut=[kind for kind, found in every.items() if len(found) > MOST],
    )


def _gate(conn: sqlite3.Connection, run: Run) -> Gate | None:
    to_phase = ""
    try:
        to_phase = transitions.next_phase(conn, run)
        verdict = gates.evaluate(conn, run, to_phase, priority=gates.DEFAULT_PRIORITY)
    except RunOver:
        return None
    except IcError as exc:  # the rest is worth knowing all the same
        return Gate(run.phase, to_phase, "unknown", "none", error=exc.message)
    evidence = verdict.evidence_json()
    told = UNSET if evidence is None else Raw(evidence.encode())
    return Gate(run.phase, to_phase, verdict.result, verdict.tier, told)


# --- what is shown --------------------------------------------------------------------------------


def ask_take(world: World, f: TakeForm) -> Ask:
    if (f.run_id is not None) == f.current:
        raise Usage("pass either RUN or --current")
    if f.project is not None and not f.current:
        raise Usage("--project requires --current")

    if f.svg and world.json:
        raise Usage("--svg and --json are mutually exclusive")

    def show(found: Snapshot | None) -> Output:
        if f.svg and found is not None:
            from icd.features.runs.timeline import svg  # few want it

            return Output(0, svg(found, time.time()).encode("utf-8", "backslashreplace"))
        if found is None:
            return render.to_json({"found": False}, 1) if world.json else Output(1)
        return render.shown(world, found, lambda: _lines(found), _for_people)

    return Ask("run.snapshot", narrow(f, Take), show)


def _for_people(found: Snapshot, _f: object, screen: Any) -> Iterator[str]:
    from icd.features.runs.timeline import show  # a pipe never pays for it

    return show(found, screen)


def _lines(found: Snapshot) -> list[str]:
    run = found.run
    facts = {
        **about(run),
        "Scope": run.scope_id,
        "Created": run.created_at_iso,
        "Updated": run.updated_at_iso,
        "Tokens": _tokens(found),
    }
    return [
        *labelled(facts),
        *_gate_lines(found.gate),
        *_rows("Agents", found.agents, _agent),
        *_rows("Artifacts", found.artifacts, _artifact),
        *_rows("Dispatches", found.dispatches, _dispatch),
        *_rows("History", found.events, _event),
    ]


def about(run: Document) -> dict[str, str | None]:
    """The facts with which each text about a run begins."""
    return {
        "ID": run.id,
        "Status": run.status,
        "Phase": run.phase,
        "Goal": render.one_line(run.goal),
        "Project": render.one_line(run.project_dir),
    }


def labelled(facts: dict[str, str | None]) -> list[str]:
    return [_label(name, value) for name, value in facts.items() if value is not None]


def _tokens(found: Snapshot) -> str:
    used, budget = found.tokens, found.budget
    text = f"{used.total_tokens} ({used.input_tokens} in, {used.output_tokens} out)"
    if budget.budget is None:
        return text
    return f"{text}, {budget.usage_pct:.1f}% of {budget.budget}: {budget.status}"


def _gate_lines(gate: Gate | None) -> Iterator[str]:
    if gate is None:
        return
    if gate.error:
        yield _label("Gate", f"{gate.result} — {gate.error}")
        return
    way = f"{gate.from_phase} → {gate.to_phase}"
    yield _label("Gate", f"{way}: {gate.result} (tier: {gate.tier})")
    if isinstance(gate.evidence, Raw):
        found = msgspec.json.decode(gate.evidence, type=Evidence)
        yield from map(show_condition, found.conditions)


def _rows(name: str, found: Sequence[T], row: Callable[[T], str]) -> list[str]:
    """How many there are, and the newest of them."""
    if not found:
        return []
    earlier = len(found) - SHOWN
    told = f"{len(found)}, the newest {SHOWN}:" if earlier > 0 else str(len(found))
    return [_label(name, told), *(f"  {row(each)}" for each in found[-SHOWN:])]


def _agent(agent: Agent) -> str:
    return _joined(agent.id, agent.status, agent.agent_type, agent.name)


def _artifact(artifact: Artifact) -> str:
    mark = None if artifact.status == "active" else f"({artifact.status})"
    return _joined(artifact.id, artifact.phase, artifact.type, artifact.path, mark)


def _dispatch(dispatch: Dispatch) -> str:
    verdict = dispatch.verdict_status and f"verdict {dispatch.verdict_status}"
    return _joined(dispatch.id, dispatch.status, dispatch.agent_type, dispatch.name, verdict)


def _event(event: PhaseEvent) -> str:
    moved = f"{event.from_phase} → {event.to_phase}"
    gate = event.gate_result and f"gate {event.gate_result}"
    return _joined(event.created_at_iso, event.event_type, moved, gate)


def _joined(*words: str | None) -> str:
    return "  ".join(word for word in words if word)


def _label(name: str, value: str) -> str:
    return f"{name + ':':<{_LABEL}}{value}"


VERBS = [
    Method("run.snapshot", Take, Snapshot | None, take),
    Command(
        "run snapshot",
        TakeForm,
        ask_take,
        human=_for_people,
        order=("current", "project", "svg"),
        summary="Show everything about a run.",
        examples=[
            'icctl run snapshot "$RUN"',
            "icctl run snapshot --current --json",
            "icctl run snapshot --current --project=../other",
        ],
    ),
]
