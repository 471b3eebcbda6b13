"""`icctl ping`, `icctl status`"""

import click

from icd.cli import render, reports
from icd.cli.invocation import Ask, Output, World
from icd.rpc.methods import daemon as methods


@click.command("ping", add_help_option=False, short_help="Print pong if the daemon answers.")
def ping(world: World) -> Ask:
    """Print pong if the daemon answers; exit 1 if there is none.

    \b
    Example:
      icctl ping
    """

    def show(_result: methods.Pong) -> Output:
        return render.text("pong")

    return Ask("icd.ping", methods.Ping(), render.to_json if world.json else show)


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
