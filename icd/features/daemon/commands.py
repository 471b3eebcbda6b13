"""`icctl ping`, `icctl status`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.features.daemon import methods
from icd.features.daemon import status_text as reports


@click.command("ping", add_help_option=False, short_help="Print pong if the daemon answers.")
def ping(world: World) -> Ask:
    """Print pong if the daemon answers; exit 1 if there is none.

    With --verbose also the versions of this program and of the daemon.

    \b
    Examples:
      icctl ping
      icctl ping --verbose
    """
    mine = world.client_version or "unknown"

    def show(result: methods.Pong) -> Output:
        versions = [f"{world.program} {mine}", f"icd {result.version}, pid {result.pid}"]
        return render.text("pong", *(versions if world.verbose else []))

    def show_json(result: methods.Pong) -> Output:
        facts = {"pid": result.pid, "version": result.version}
        return render.to_json(facts | {"client": mine} if world.verbose else facts)

    return Ask("icd.ping", methods.Ping(), show_json if world.json else show)


@click.command("status", add_help_option=False, short_help="Show what the daemon is doing.")
def status(world: World) -> Ask:
    """Show what the daemon is doing, and how well; exit 1 if there is none.

    What deserves a look has a ! before it: starts that failed, scripts whose calls failed within
    the last day, a database that hangs.

    \b
    Examples:
      icctl status
      icctl status --json
    """
    return Ask("icd.status", methods.Status(), render.to_json if world.json else _show_status)


def _show_status(report: methods.Report) -> Output:
    return render.text(*reports.lines(report))


COMMANDS = [ping, status]
