"""trust: accept what a database, and a script beside it, would do outside of the database.

It runs in the caller's own process: a caller that may not write to the home directory, such as an
agent in a sandbox, can trust nothing, and no other process does it instead.
"""

import os
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Struct

from icd import config, trust
from icd.app import render
from icd.app.invocation import Caller, Local, Output, World
from icd.app.verb import Column, Command, Option, Table
from icd.db import paths
from icd.errors import NoDatabase, PermissionRefused, Untrusted, Usage, from_os
from icd.features import interband
from icd.features.dispatches import launch
from icd.features.dispatches.auto_spawn import AskDue, Due
from icd.features.runs.store import Document
from icd.features.runs.verbs import runs
from icd.features.state import verbs as state
from icd.features.triggers import files
from icd.features.triggers.files import Trust
from icd.values.wire import Result

# Of the agents that would start at once; 'icctl run list' leads to the others.
AGENTS_SHOWN = 100


class TrustForm(Struct):
    """Trust the database here to start agents and mirror rows, and print what it would do.

    A database that init or restore created here is trusted.
    Any other, such as one from a clone or of version 0.4.0 and earlier, can be read and written,
    but its rows start no program and write no file elsewhere until it is trusted.
    A dispatch script in the project or above it is accepted with its current content.
    Triggers are only listed: see 'icctl triggers trust'.

    Trust is recorded in your home directory, for this very file: a file that replaces it, such as
    by git, is not trusted.
    """

    dry_run: Annotated[
        bool, Option("--dry-run", "Print what the database would do, and change nothing.")
    ] = False
    lists: Annotated[bool, Option("--list", "List the trusted databases.")] = False
    revoke: Annotated[bool, Option("--revoke", "Stop trusting the database.")] = False


class Script(Result):
    """A dispatch script; `problem` says why it cannot be accepted, and there is no digest then."""

    path: str
    state: str
    sha256: str = ""
    problem: str = ""


class Agent(Result):
    """An agent that the next phase of its run starts."""

    run_id: str
    name: str
    project: str
    prompt: str
    sandbox: str


class Channel(Result):
    """Rows of state that are mirrored to files below this directory."""

    key: str
    rows: int
    path: str


class Hook(Result):
    name: str
    state: str


class Effects(Result):
    """What a database would have done, and whether it is trusted; `problem` says why not."""

    path: str
    trusted: bool
    problem: str
    scripts: list[Script]
    agents: list[Agent]
    mirrored: list[Channel]
    hooks: list[Hook]


class Entry(Result):
    """`state`: trusted, or why what lies there now is not."""

    path: str
    state: str
    granted_at: int
    scripts: dict[str, str]


def ask_trust(world: World, f: TrustForm) -> Local:
    if f.dry_run + f.lists + f.revoke > 1:
        raise Usage("--dry-run, --list and --revoke are mutually exclusive")
    if f.lists:
        return Local(lambda _ask: _listed(world))
    if f.revoke:
        return Local(lambda _ask: _revoked(world))
    return Local(lambda ask: _accepted(world, ask, dry_run=f.dry_run))


def _accepted(world: World, ask: Caller, *, dry_run: bool) -> Output:
    home, database = _home(world), paths.canonical(paths.resolve(world.where))
    found = _effects(world, ask, home, database)
    if not dry_run:
        accepted = {each.path: each.sha256 for each in found.scripts if each.sha256}
        try:
            trust.grant(home, database, scripts=accepted)
        except trust.Unfit as exc:
            hint = "a trusted file must be writable only by you"
            raise Untrusted(f"it cannot be trusted: {exc}", hint=hint) from exc
        except OSError as exc:
            raise from_os(exc, f"record the trust in {home}/{trust.SHARE}") from exc
        found = _effects(world, ask, home, database)
    return render.shown(world, found, lambda: _lines(found), _effects_for_people)


def _effects(world: World, ask: Caller, home: str, database: str) -> Effects:
    """All that trust is needed for; the database is opened for it, and so judged."""
    agents = _agents(ask)
    projects = [world.cwd, *(each.project for each in agents)]
    found = dict.fromkeys(filter(None, map(launch.in_project, projects)))
    why = trust.objection(home, database)
    return Effects(
        path=database,
        trusted=not why,
        problem=why,
        scripts=[_script(home, database, script) for script in found],
        agents=agents,
        mirrored=list(_mirrored(ask, home, database)),
        hooks=_hooks(home, database),
    )


def _agents(ask: Caller) -> list[Agent]:
    found: list[Agent] = []
    active: list[Document] = ask("run.list", runs.List(status="active"))
    for run in active:
        if not run.auto_spawn:
            continue
        due: list[Due] = ask("dispatch.due", AskDue(run.id))
        found += [_agent(run.id, each) for each in due]
        if len(found) > AGENTS_SHOWN:
            break
    return found[:AGENTS_SHOWN]


def _agent(run_id: str, due: Due) -> Agent:
    return Agent(run_id, due.title, due.project_dir, due.prompt, due.sandbox or "")


def _script(home: str, database: str, path: str) -> Script:
    try:
        sha256 = trust.script_digest(path)
    except trust.Unfit as exc:
        return Script(path, "refused", problem=str(exc))
    known = trust.allows_script(home, database, path)
    return Script(path, "trusted" if known else "untrusted", sha256)


def _mirrored(ask: Caller, home: str, database: str) -> Iterator[Channel]:
    settings = config.load(config.user_file(home), config.project_file(database))
    root = settings.mirror.root or "~/.interband"
    for key, channel in interband.channels(settings.mirror).items():
        rows = len(ask("state.list", state.List(key=key)))
        if rows:
            yield Channel(key, rows, f"{root}/{channel.namespace}/{channel.name}")


def _hooks(home: str, database: str) -> list[Hook]:
    project = files.project(database)
    if project is None:
        return []
    known = Trust(home, project)
    return [Hook(each.name, known.state(each)) for each in known.looks.look()]


def _lines(found: Effects) -> list[str]:
    return ["\t".join(map(_plain, line)) for line in _rows(found)]


def _rows(found: Effects) -> list[list[str]]:
    verdict = "trusted" if found.trusted else f"untrusted: {found.problem}"
    lines = [["database", found.path, verdict]]
    lines += [["script", e.path, _verdict(e)] for e in found.scripts]
    lines += [["agent", e.name, f"of run {e.run_id}, prompt {e.prompt}"] for e in found.agents]
    lines += [["mirror", e.key, f"{e.rows} rows to {e.path}"] for e in found.mirrored]
    lines += [["hook", each.name, each.state] for each in found.hooks]
    return lines


def _verdict(script: Script) -> str:
    return script.problem or f"{script.state}, sha256 {script.sha256}"


def _plain(text: str) -> str:
    """What a stranger wrote must not move the cursor, nor look like another line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _listed(world: World) -> Output:
    home = _home(world)
    found = [
        Entry(e.path, trust.objection(home, e.path) or "trusted", e.granted_at, e.scripts)
        for e in trust.entries(home)
    ]
    lines = (f"{_plain(e.path)}\t{_plain(e.state)}" for e in found)
    return render.shown(world, found, lambda: lines, ENTRIES)


def _revoked(world: World) -> Output:
    """Also of a database that is gone."""
    home = _home(world)
    try:
        database = paths.resolve(world.where)
    except NoDatabase:
        database = paths.target(world.where)
    database = paths.canonical(database)
    try:
        was = trust.revoke(home, database)
    except OSError as exc:
        raise from_os(exc, f"remove the trust in {home}/{trust.SHARE}") from exc
    gone = [database] if was else []
    if world.json:
        return render.to_json(gone, 0 if gone else 1)
    return render.text(*map(_plain, gone), exit_code=0 if gone else 1)


def _home(world: World) -> str:
    home = world.env.get("HOME")
    if not home or not os.path.isabs(home):
        raise PermissionRefused("trust is recorded in the home directory", hint="set HOME")
    return home


ENTRIES = Table(
    Column("STATE", "state", "state"),
    Column("TRUSTED", "granted_at", "age"),
    Column("DATABASE", "path", "path"),
    empty="No database is trusted. See what one would do: icctl trust --dry-run",
)
_EFFECTS = Table(
    Column("WHAT", lambda line: line[0], "id"),
    Column("NAME", lambda line: line[1], "path"),
    Column("DETAIL", lambda line: line[2]),
)


def _effects_for_people(found: Effects, _f: object, screen: Any) -> list[str]:
    lines: list[str] = screen.table(_EFFECTS, _rows(found))
    return lines


VERBS = [
    Command(
        "trust",
        TrustForm,
        ask_trust,
        human=_effects_for_people,
        summary="Trust a database to start programs.",
        examples=[
            "icctl trust --dry-run",
            "icctl trust",
            "icctl trust --list --json",
            "icctl trust --revoke",
        ],
    ),
]
