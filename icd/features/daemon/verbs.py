"""ping, status, metrics, and icd.*, rpc.*, cli.*: the daemon itself answers these.

None of them waits for a database, so a daemon that is busy never looks dead.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta, field

from icd import __version__
from icd.app import render
from icd.app.call import Params
from icd.app.invocation import Ask, Output, World
from icd.app.verb import Command, Method, Verb
from icd.errors import IcError, NoCommonProtocol
from icd.features.daemon import report
from icd.features.daemon.report import Report
from icd.values.wire import Result

PROTOCOL = 1
PROTOCOLS_SHOWN = 8  # of those a client offers; a sentence is not a dump
CAPABILITIES = [
    "batch", "keyhole", "request_id", "state", "sentinel", "events", "statusline", "stream",
    "watch",
]  # fmt: skip


# --- parameters -----------------------------------------------------------------------------------


class Ping(Params):
    """Print pong if the daemon answers; exit 1 if no daemon runs.

    --verbose adds the versions of this program and of the daemon.
    """

    rpc = "Check that the daemon answers."


class Status(Params):
    """Show the daemon's status; exit 1 if no daemon runs.

    A ! marks warnings: failed starts, scripts whose calls failed within the last day, and databases
    that hang.
    """

    rpc = "Return the daemon's status and counts."


class Metrics(Params):
    """Print the daemon's metrics as OpenMetrics text; exit 1 if no daemon runs.

    With --json, prints the same as 'icctl status --json'.
    """


class Hello(Params):
    """Negotiate the protocol version and capabilities."""

    protocols: Annotated[
        list[int], Meta(description="Protocol versions that the client supports, preferred first.")
    ] = field(default_factory=lambda: [PROTOCOL])
    capabilities: Annotated[
        list[str], Meta(description="Capabilities that the client requires.")
    ] = field(default_factory=list)


class Reload(Params):
    """Reload the daemon with the installed version, without losing a call.

    This works however the daemon was started: by systemd or by hand.
    If the new version does not start, the daemon keeps running the old one.
    """


class Discover(Params):
    """Describe all methods, as an OpenRPC document."""


class Run(Params):
    """Run an `icctl` command line."""

    argv: Annotated[list[str], Meta(description="Arguments, without the program's name.")]
    program: Annotated[str, Meta(description="Program name for messages.")] = "icctl"
    env: Annotated[
        dict[str, str],
        Meta(description="Environment; INTERCORE_DB and the session's variables are used."),
    ] = field(default_factory=dict)
    stdin: Annotated[str | None, Meta(description="Standard input of the command.")] = None
    files: Annotated[
        dict[str, str], Meta(description="Files that the command may read: content by path.")
    ] = field(default_factory=dict)


# --- results --------------------------------------------------------------------------------------


class Pong(Result):
    pid: int
    version: str


class Welcome(Result):
    """`unknown_capabilities`: what the client asked for and will not get."""

    protocol: int
    capabilities: list[str]
    unknown_capabilities: list[str]
    version: str
    pid: int
    sqlite_version: str


class Reloaded(Result):
    version: str
    previous: str
    pid: int


class Ran(Result):
    """What the command printed; or, having done nothing, which input it needs first."""

    exit: int | None = None
    stdout: str = ""
    stderr: str = ""
    need: str | None = None
    path: str | None = None
    then: list[str] | None = None


def no_common_protocol(offered: list[int]) -> IcError:
    theirs = ", ".join(str(number) for number in offered[:PROTOCOLS_SHOWN]) or "none"
    return NoCommonProtocol(
        f"icd {__version__} supports protocol {PROTOCOL}, the client supports {theirs}"
    )


# --- what is shown --------------------------------------------------------------------------------


def ask_ping(world: World, p: Ping) -> Ask:
    mine = world.client_version or "unknown"

    def show(r: Pong) -> Output:
        if world.json:
            facts = {"pid": r.pid, "version": r.version}
            return render.to_json(facts | {"client": mine} if world.verbose else facts)
        versions = [f"{world.program} {mine}", f"icd {r.version}, pid {r.pid}"]
        return render.text("pong", *(versions if world.verbose else []))

    return Ask("icd.ping", p, show)


def show_status(r: Report, _p: Status) -> Iterable[str]:
    return report.lines(r)


def _for_people(r: Report, _p: Status, screen: Any) -> Iterable[str]:
    from icd.features.daemon.screen import show  # a pipe never pays for it

    return show(r, screen)


def show_metrics(r: Report, _f: Metrics) -> Output:
    from icd.features.daemon import metrics  # only this command pays for it

    return metrics.show(r)


VERBS = [
    Method("icd.ping", Ping, Pong, None),
    Command(
        "ping",
        Ping,
        ask_ping,
        summary="Print pong if the daemon answers.",
        examples=["icctl ping", "icctl ping --verbose"],
    ),
    Verb(
        "status",
        Status,
        Report,
        None,
        method="icd.status",
        show=show_status,
        human=_for_people,
        summary="Show the daemon's status.",
        examples=["icctl status", "icctl status --json"],
    ),
    Command(
        "metrics",
        Metrics,
        lambda _world, _f: Ask("icd.status", Status()),
        show=show_metrics,
        summary="Print metrics (OpenMetrics).",
        examples=[
            "icctl metrics",
            "icctl metrics > .intercore.tmp && mv .intercore.tmp intercore.prom",
        ],
    ),
    Method("icd.hello", Hello, Welcome, None),
    Method("icd.reload", Reload, Reloaded, None),
    Method("rpc.discover", Discover, dict[str, Any], None),
    Method("cli.run", Run, Ran, None),
]
