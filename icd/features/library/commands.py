"""`icctl lib-path`"""

import os

import click

from icd.app import render
from icd.app.invocation import Output, World

NAME = "lib-intercore.sh"
# Beside the packages in a checkout, inside this one when installed.
PLACES = [os.path.join(os.path.dirname(__file__), up, NAME) for up in ("../..", "../../..")]
PATH = os.path.abspath(next(filter(os.path.exists, PLACES), PLACES[0]))


@click.command(
    "lib-path", add_help_option=False, short_help="Print where the library for bash hooks is."
)
def lib_path(world: World) -> Output:
    """Print where the library for bash hooks is.

    \b
    Example:
      source "$(icctl lib-path)"
    """
    return render.to_json({"path": PATH}) if world.json else render.text(PATH)


COMMANDS = [lib_path]
