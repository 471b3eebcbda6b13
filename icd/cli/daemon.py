"""`icctl ping`, `icctl status`"""

import click

from icd.cli import render
from icd.cli.invocation import Ask, Output, World
from icd.rpc.methods import daemon as methods


@click.command("ping", add_help_option=False, short_help="Print pong if the daemon answers.")
def ping(world: World) -> Ask:
    """Print pong if the daemon answers; exit 1 if there is none.

    With --verbose also the versions of this program and of the daemon.

    \b
    Examples:
      icctl ping
      icctl ping --verbose
    """
    mine = world.invocation.client_version or "unknown"

    def show(result: methods.Pong) -> Output:
        versions = [f"{world.invocation.program} {mine}", f"icd {result.version}, pid {result.pid}"]
        return render.text("pong", *(versions if world.verbose else []))

    def show_json(result: methods.Pong) -> Output:
        facts = {"pid": result.pid, "version": result.version}
        return render.to_json(facts | {"client": mine} if world.verbose else facts)

    return Ask("icd.ping", methods.Ping(), show_json if world.json else show)


@click.command("status", add_help_option=False, short_help="Show what the daemon is doing.")
def status(world: World) -> Ask:
    """Show what the daemon is doing; exit 1 if there is none.

    \b
    Examples:
      icctl status
      icctl status --json
    """
    return Ask("icd.status", methods.Status(), render.to_json if world.json else _show_status)


def _show_status(report: methods.Report) -> Output:
    calls, failures = sum(report.calls.values()), sum(report.failures.values())
    lines = [
        f"icd {report.version}, pid {report.pid}, up {report.uptime} s",
        f"socket: {report.socket}",
        f"sqlite: {report.sqlite_version}",
        f"sessions: {report.sessions}",
        f"calls: {calls}, failed: {failures}",
        *(f"  failed: {name} {count}" for name, count in sorted(report.failures.items())),
        *(
            f"  failed without the daemon: {n} {count}"
            for n, count in sorted(report.missed.items())
        ),
        f"databases: {len(report.databases)}",
    ]
    lines += [
        f"  {db.path}: {db.calls} calls in {db.batches} batches, {db.waiting} waiting"
        for db in report.databases
    ]
    mirror = report.mirror
    lines.append(
        f"mirror: {mirror.written} written, {mirror.removed} removed, {mirror.kept} kept,"
        f" {mirror.waiting} waiting, {mirror.failed} failed"
    )
    lines += [f"  last error: {mirror.last_error}"] if mirror.last_error else []
    return render.text(*lines)


COMMANDS = [ping, status]
