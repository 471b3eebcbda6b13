"""`icctl run snapshot`"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.errors import Usage
from icd.features.dispatches.store import Dispatch
from icd.features.runs import budget_commands as budgets
from icd.features.runs import snapshot_methods as methods
from icd.features.runs.agent_methods import Agent
from icd.features.runs.artifact_methods import Artifact
from icd.features.runs.documents import Document
from icd.features.runs.history import PhaseEvent

T = TypeVar("T")

SHOWN = 10  # rows of each kind, the newest: a screen holds no more; --json has them all
_LABEL = 12  # columns, as in `run status`


@click.command("snapshot", add_help_option=False, short_help="Show everything about a run.")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--current", is_flag=True, help="The newest active run of the project.")
@click.option("--project", metavar="DIR", help="Of this project; else of the current directory.")
def snapshot(world: World, *, run: str | None, current: bool, project: str | None) -> Ask:
    """Print a run with its history, agents, artifacts, dispatches, tokens, budget and gate.

    It is one call and one moment: nothing in it contradicts the rest.
    With --current, exit 1 if no run of the project is active.
    The text shows the newest ten of each kind; --json shows all.

    \b
    Examples:
      icctl run snapshot "$RUN"
      icctl run snapshot --current --json
      icctl run snapshot --current --project=../other
    """
    if (run is not None) == current:
        raise Usage("give either RUN or --current")
    if project is not None and not current:
        raise Usage("--project goes with --current")

    def show(found: methods.Snapshot | None) -> Output:
        if found is None:
            return render.to_json({"found": False}, 1) if world.json else Output(1)
        return render.to_json(found) if world.json else render.text(*_lines(found))

    params = methods.Take(run_id=run, cwd=world.cwd, project=project)
    return Ask("run.snapshot", params, show)


def _lines(found: methods.Snapshot) -> list[str]:
    return [
        *_about(found.run),
        _label("Tokens", _tokens(found)),
        *_gate(found.gate),
        *_rows("Agents", found.agents, _agent),
        *_rows("Artifacts", found.artifacts, _artifact),
        *_rows("Dispatches", found.dispatches, _dispatch),
        *_rows("History", found.events, _event),
    ]


def _about(run: Document) -> list[str]:
    facts = {
        "ID": run.id,
        "Status": run.status,
        "Phase": run.phase,
        "Goal": render.one_line(run.goal),
        "Project": render.one_line(run.project_dir),
        "Scope": run.scope_id,
        "Created": run.created_at_iso,
        "Updated": run.updated_at_iso,
    }
    return [_label(name, value) for name, value in facts.items() if value is not None]


def _tokens(found: methods.Snapshot) -> str:
    used, budget = found.tokens, found.budget
    text = f"{used.total_tokens} ({used.input_tokens} in, {used.output_tokens} out)"
    if budget.budget is None:
        return text
    share = f"{budget.usage_pct:.1f}% of {budget.budget}"
    return f"{text}, {share}: {budgets.status(budget)}"


def _gate(gate: methods.GateVerdict | None) -> list[str]:
    if gate is None:
        return []
    if gate.error:
        return [_label("Gate", f"{gate.result} — {gate.error}")]
    said = f"{gate.from_phase} → {gate.to_phase}: {gate.result} (tier: {gate.tier})"
    return [_label("Gate", said), *map(_condition, _conditions(gate))]


def _conditions(gate: methods.GateVerdict) -> list[dict[str, Any]]:
    if not isinstance(gate.evidence, msgspec.Raw):
        return []
    found: list[dict[str, Any]] = msgspec.json.decode(gate.evidence)["conditions"]
    return found


def _condition(found: dict[str, Any]) -> str:
    """The same line as `gate check` prints."""
    step = f" ({found['from_phase']} → {found['to_phase']})" if "from_phase" in found else ""
    count = f" (count: {found['count']})" if "count" in found else ""
    detail = f" — {found['detail']}" if "detail" in found else ""
    return f"  [{found['result'].upper()}] {found['check']}{step}{count}{detail}"


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


COMMANDS = [snapshot]
