"""What `icctl setup` does to the files of a coding agent, and what it says about it."""

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator
from shutil import which

import msgspec
from msgspec import Struct

from icd.admin.setup import agents, store
from icd.admin.setup.agents import AGENTS, Agent, Scope, Target
from icd.admin.setup.documents import PROGRAM, REMOVABLE, Found
from icd.admin.setup.jsonc import Malformed
from icd.admin.setup.store import Memory, Place, Record, Seen
from icd.admin.setup.verbs import Setup
from icd.app import render
from icd.app.invocation import Output, World
from icd.db import paths
from icd.errors import AgentConfigRefused, Usage
from icd.printable import printable

_MEND = "mend the file, or move it away, and try again"
# What `--check` says about an entry, and whether it is there.
_SAYS = {
    "missing": "missing",
    "ours": "present",
    "stale": "outdated",
    "edited": "present, edited by you",
    "foreign": "yours, left alone",
    "unread": "not read by the agent: another member of that name follows",
}


class Row(Struct, omit_defaults=True):
    """An entry in a file, and what is or was done about it."""

    agent: str
    path: str
    entry: str
    state: str


class Done(Struct):
    """What is printed; `exit` is not."""

    entries: list[Row] = []
    copies: list[str] = []
    diff: str = ""
    notes: list[str] = []
    exit: int = 0


class Edit(Struct):
    """What becomes of a file: `data` is its new content, None: it goes.

    `base` is its content without our entries.
    """

    target: Target
    place: Place
    seen: Seen
    found: list[Found]
    record: Record | None
    base: bytes | None
    data: bytes | None

    @property
    def changes(self) -> bool:
        return self.data != self.seen.content


# --- the command ----------------------------------------------------------------------------------


def setup(world: World, f: Setup) -> Output:
    _refuse_contradictions(f)
    home = world.env.get("HOME", "")
    if not os.path.isabs(home):
        raise AgentConfigRefused("HOME is not set, or not an absolute path", hint="set HOME")
    scope = Scope(world.env, home, _root(world) if f.project else None)
    _refuse_unwritable(home, *([scope.root] if scope.root is not None else [_program(world)]))
    if f.agent is not None:
        return _shown(world, _one(world, f, scope, AGENTS[f.agent]))
    return _shown(world, _all(world, f, scope))


def _refuse_contradictions(f: Setup) -> None:
    if f.user and f.project:
        raise Usage("choose one of --user and --project")
    if f.check and (f.remove or f.dry_run):
        raise Usage("--check only looks; leave out --remove and --dry-run")


def _refuse_unwritable(*names: str) -> None:
    """What we write and remember is UTF-8, and a path need not be."""
    for path in names:
        try:
            path.encode()
        except UnicodeEncodeError as exc:
            shown = os.fsencode(path).decode(errors="backslashreplace")
            told = f"the path {shown} is not UTF-8, so no configuration can name it"
            raise AgentConfigRefused(told, hint="rename it, or install icctl elsewhere") from exc


def _root(world: World) -> str:
    return paths.project_root(os.path.realpath(world.cwd))


def _all(world: World, f: Setup, scope: Scope) -> Done:
    """Every agent of this machine, or how to set one up."""
    there = agents.found(world.env, scope.home)
    if not there:
        names = ", ".join(agent.title for agent in AGENTS.values())
        told = f"found none of {names}; name one to set it up anyway, as in 'icctl setup claude'"
        return Done(notes=[told], exit=1)
    if not (f.check or f.dry_run):
        verb = "remove our entries" if f.remove else "set it up"
        ask = _asks()
        if ask is None:
            return Done(notes=[f"found {a.title}; to {verb}: {_command(f, a)}" for a in there])
        asked = "Remove our entries from" if f.remove else "Set up"
        there = [a for a in there if ask(f"{asked} {a.title} ({_files(f, scope, a)})? [y/N] ")]
    done = Done()
    for agent in there:
        one = _one_of_many(world, f, scope, agent)
        done.entries += one.entries
        done.copies += one.copies
        done.diff += one.diff
        done.notes += one.notes
        done.exit = max(done.exit, one.exit)
    return done


def _one_of_many(world: World, f: Setup, scope: Scope, agent: Agent) -> Done:
    """A file that is refused keeps no other agent from being set up."""
    try:
        return _one(world, f, scope, agent)
    except AgentConfigRefused as exc:
        return Done(notes=[f"{agent.title}: {exc.message}; {exc.hint}"], exit=exc.exit)


def _command(f: Setup, agent: Agent) -> str:
    """What to type for one agent."""
    flags = {"--remove": f.remove, "--project": f.project, "--mcp": f.mcp}
    return " ".join([PROGRAM, "setup", agent.name, *(flag for flag in flags if flags[flag])])


def _files(f: Setup, scope: Scope, agent: Agent) -> str:
    some = agents.targets(agent, scope, PROGRAM, mcp=f.mcp)
    return ", ".join(t.path for t in some if t.wanted or f.remove)


def _asks() -> Callable[[str], bool] | None:
    """How to ask the person at the terminal; None if there is none."""
    if not (os.isatty(0) and os.isatty(2)):
        return None

    def ask(question: str) -> bool:
        os.write(2, printable(os.fsencode(question)))
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask


# --- one agent ------------------------------------------------------------------------------------


def _one(world: World, f: Setup, scope: Scope, agent: Agent) -> Done:
    program = PROGRAM if scope.root is not None else _program(world)
    targets = agents.targets(agent, scope, program, mcp=f.mcp)
    memory = Memory(scope.home)
    # What was not asked for is not looked at, however it is.
    targets = [target for target in targets if target.wanted or f.remove]
    if f.check:
        return _checked(f, agent, [_edit(target, scope, memory, f) for target in targets])
    if f.dry_run:
        return Done(diff="".join(_diff(_edit(t, scope, memory, f)) for t in targets))
    try:
        with memory.locked():
            edits = [_edit(target, scope, memory, f) for target in targets]
            copies = [c for edit in edits if edit.changes for c in _carried_out(edit, memory, f)]
    except OSError as exc:
        told = f"cannot write {exc.filename or memory.share}: {exc.strerror}"
        raise AgentConfigRefused(told, hint="make room for it, or mend its mode") from exc
    return _reported(f, agent, edits, copies, program)


def _reported(f: Setup, agent: Agent, edits: list[Edit], copies: list[str], program: str) -> Done:
    if f.remove:
        store.prune([path for edit in edits if edit.record for path in edit.record.made])
        return Done(list(_removed(agent, edits)), copies)
    is_new = any(edit.changes for edit in edits)
    notes = _next(f, agent, program) if is_new else []
    return Done(list(_added(agent, edits)), copies, notes=notes)


def _program(world: World) -> str:
    """The path of `icctl` as the caller finds it: an agent's own PATH may be another."""
    found = which(PROGRAM, path=world.env.get("PATH", os.defpath))
    if found is None or not os.path.isabs(found):
        found = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    return found if os.access(found, os.X_OK) else PROGRAM


def _edit(target: Target, scope: Scope, memory: Memory, f: Setup) -> Edit:
    """Decide what becomes of a file; nothing is changed."""
    own = scope.root is None
    place = store.own(target.path) if own else store.below(scope.root or "", target.path)
    seen = store.read(place)
    record, is_known = memory.record(target.path, seen.content)
    is_ours = PROGRAM.encode() in (seen.content or b"")
    if not is_ours:  # what we remember is another file's story: this one is the user's
        record, is_known = None, False
    edit = Edit(target, place, seen, [], record, seen.content, seen.content)
    if f.remove and not is_ours:
        return edit
    try:
        _decide(edit, f, is_known=is_known)
    except UnicodeDecodeError as exc:
        raise AgentConfigRefused(f"{target.path} is not UTF-8 text", hint=_MEND) from exc
    except Malformed as exc:
        told = f"{target.path} is not a configuration that icctl understands: {exc}"
        raise AgentConfigRefused(told, hint=_MEND, path=target.path) from exc
    return edit


def _decide(edit: Edit, f: Setup, *, is_known: bool) -> None:
    target, seen, record = edit.target, edit.seen, edit.record
    text = (seen.content or b"").decode()
    edit.found = target.document.found(text)
    if f.check:
        return
    if not f.remove:
        edit.data = _with(target, seen, text)
    if f.remove or edit.changes:
        known = record if is_known else None
        edit.base = known.base if known else _without(target, seen, record, text)
    if f.remove:
        edit.data = edit.base


def _without(target: Target, seen: Seen, record: Record | None, text: str) -> bytes | None:
    """The file without our entries; what we made goes, if nothing else is in it."""
    if seen.content is None:
        return None
    rest = target.document.removed(text)
    we_made_it = record is not None and record.base is None
    return None if we_made_it and target.document.is_empty(rest) else rest.encode()


def _with(target: Target, seen: Seen, text: str) -> bytes | None:
    """The file with the entries that were asked for."""
    made = text if target.wanted is None else target.wanted.added(text)
    return seen.content if made == text else made.encode()


def _carried_out(edit: Edit, memory: Memory, f: Setup) -> Iterator[str]:
    """Write it; the copy of what was there before is told."""
    path, record = edit.target.path, edit.record
    if edit.seen.content:
        yield memory.copy(path, edit.seen.content)
    made = record.made if record else []
    if f.remove:
        if edit.data is None:
            store.delete(edit.place, edit.seen)
        else:
            store.write(edit.place, edit.seen, edit.data)
        memory.forget(path)
        return
    assert edit.data is not None
    contents = [data for data in (edit.seen.content, edit.data) if data is not None]
    new = Record(path, [store.digest(data) for data in contents], edit.base, made)
    # Remembered first, and for both: it holds wherever we may die.
    memory.remember(new)
    if directories := store.write(edit.place, edit.seen, edit.data):
        memory.remember(msgspec.structs.replace(new, made=[*made, *directories]))


# --- what is said ---------------------------------------------------------------------------------


def _checked(f: Setup, agent: Agent, edits: list[Edit]) -> Done:
    rows = [
        Row(agent.name, edit.target.path, one.entry.what, _SAYS[one.state])
        for edit in edits
        for one in _asked(edit)
    ]
    is_whole = all(row.state not in ("missing", "outdated") for row in rows)
    hint = [] if is_whole else [f"to add them: {_command(f, agent)}"]
    return Done(rows, notes=hint, exit=0 if is_whole else 1)


def _asked(edit: Edit) -> list[Found]:
    """The entries that this call is about."""
    wanted = edit.target.wanted
    return wanted.found((edit.seen.content or b"").decode()) if wanted else []


def _added(agent: Agent, edits: list[Edit]) -> Iterator[Row]:
    states = {**_SAYS, "missing": "added", "stale": "updated"}
    for edit in edits:
        for one in _asked(edit):
            yield Row(agent.name, edit.target.path, one.entry.what, states[one.state])


def _removed(agent: Agent, edits: list[Edit]) -> Iterator[Row]:
    states = dict.fromkeys(REMOVABLE, "removed") | {"edited": "kept, edited by you"}
    for edit in edits:
        for one in edit.found:
            if one.state in states:
                yield Row(agent.name, edit.target.path, one.entry.what, states[one.state])


def _next(f: Setup, agent: Agent, program: str) -> list[str]:
    template = msgspec.json.encode(agents.guard(agent, program)).decode()
    edits = msgspec.json.encode(agents.reservations(agent, program)).decode()
    verify = f"verify with '{_command(f, agent)} --check', undo with --remove"
    return [
        *([agent.note] if agent.note else []),
        f"next: start a new session of {agent.title}; {verify}",
        f"a guard of your own, for 'hooks' in that file: {template}",
        f"one editor per file, for 'hooks' in that file: {edits}",
    ]


def _diff(edit: Edit) -> str:
    before, after = edit.seen.content, edit.data
    old, new = ("/dev/null" if data is None else edit.target.path for data in (before, after))
    lines = difflib.unified_diff(_lines(before), _lines(after), old, new)
    ended = (x if x.endswith("\n") else f"{x}\n\\ No newline at end of file\n" for x in lines)
    return "".join(ended)


def _lines(data: bytes | None) -> list[str]:
    # Python's own splitlines knows more line ends than an editor.
    return re.findall(r"[^\n]*\n|[^\n]+", (data or b"").decode().replace("\r\n", "\n"))


def _shown(world: World, done: Done) -> Output:
    if world.json:
        told = {"entries": done.entries, "copies": done.copies, "notes": done.notes}
        return render.to_json(told | ({"diff": done.diff} if done.diff else {}), done.exit)
    rows = [f"{row.state}\t{row.path}\t{row.entry}" for row in done.entries]
    copies = [f"copy of what was there\t{copy}" for copy in done.copies]
    notes = done.notes or ([] if rows or done.diff else ["nothing to do"])
    output = render.text(*rows, *copies, *notes, exit_code=done.exit)
    output.stdout = printable(done.diff.encode()) + output.stdout
    return output
