"""`icctl run artifact …`, and what `icctl run rollback --layer=code` shows."""

import hashlib
import os
import stat

import click
import msgspec

from icd.app import render
from icd.app.invocation import INPUT_BYTES, Ask, Caller, Local, Output, World
from icd.errors import UnreadableInput, Usage
from icd.features.runs import artifact_methods as methods
from icd.features.runs.artifacts import Origin

DIGEST_CHARACTERS = 12  # of a hash in a column: enough to tell two contents apart


@click.command("add", add_help_option=False, short_help="Note what a run has produced.")
@click.argument("run")
@click.option("--phase", required=True, metavar="P", help="The phase that it belongs to.")
@click.option("--path", required=True, metavar="FILE", help="Where it is, stored as given.")
@click.option("--type", "kind", default="file", metavar="T", help="What it is (default file).")
@click.option("--dispatch", metavar="ID", help="The dispatch that made it.")
def add(
    world: World, *, run: str, phase: str, path: str, kind: str, dispatch: str | None
) -> Ask | Local:
    """Note what a run has produced, and print the artifact's id; exit 1 if there is no such run.

    If you can read the file, the SHA-256 of its content is noted, too.
    FILE may also be something that is not there, or not a file.

    \b
    Examples:
      icctl run artifact add "$RUN" --phase=planned --path=docs/plan.md
      icctl run artifact add "$RUN" --phase=review --path=notes.md --type=review
    """
    if not (phase and path):
        raise Usage("--phase and --path must not be empty")

    def params(digest: str | None) -> methods.Add:
        return methods.Add(run, phase, path, type=kind, content_hash=digest, dispatch_id=dispatch)

    def show(added: methods.Added) -> Output:
        return render.to_json(added) if world.json else render.text(added.id)

    try:
        content = world.read_file(path)
    except UnreadableInput:
        return Ask("artifact.add", params(None), show)
    if len(content) <= INPUT_BYTES:
        return Ask("artifact.add", params(_prefixed(hashlib.sha256(content).hexdigest())), show)

    def run_here(ask: Caller) -> Output:  # too large to be sent
        return show(ask("artifact.add", params(_digest(world.path(path)))))

    return Local(run_here)


@click.command("list", add_help_option=False, short_help="List the artifacts of a run.")
@click.argument("run")
@click.option("--phase", metavar="P", help="Only those of this phase.")
def list_(world: World, *, run: str, phase: str | None) -> Ask:
    """Print id, phase, type and path of the artifacts of a run, the oldest first.

    \b
    Examples:
      icctl run artifact list "$RUN"
      icctl run artifact list "$RUN" --phase=planned --json
    """

    def show(found: list[methods.Artifact]) -> Output:
        return render.text(*(render.columns(a.id, a.phase, a.type, a.path) for a in found))

    params = methods.List(run, phase=phase)
    return Ask("artifact.list", params, render.to_json if world.json else show)


def code_rollback(run_id: str, phase: str | None, form: str) -> Ask:
    """`run rollback --layer=code`: the files to look at, and which dispatch made each."""
    params = methods.Origins(run_id, phase=phase)
    return Ask("artifact.origins", params, _origins_text if form == "text" else _origins_json)


def _origins_json(found: list[Origin]) -> Output:
    compact = render.lines([found]).stdout
    return Output(0, msgspec.json.format(compact, indent=2).rstrip() + b"\n")


def _origins_text(found: list[Origin]) -> Output:
    return render.text(*map(_row, found))


def _row(made: Origin) -> str:
    name = made.dispatch_name or "<unknown>"
    digest = _short(made.content_hash) if made.content_hash else "<none>"
    return f"{made.phase:<20} {made.status:<12} {name:<20} {made.path:<40} {digest}"


def _short(digest: str) -> str:
    return f"{digest[:DIGEST_CHARACTERS]}..."


def _digest(path: str) -> str | None:
    """Of a large file, in the caller's own process; what cannot be read has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None  # it might never end, or not be there again
            return _prefixed(hashlib.file_digest(file, "sha256").hexdigest())
    except OSError:
        return None


def _prefixed(digest: str) -> str:
    return f"sha256:{digest}"


COMMANDS = [add, list_]
