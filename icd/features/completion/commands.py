"""`icctl completion SHELL`"""

from importlib import import_module

import click

from icd.app import render
from icd.app.invocation import Output, World

SHELLS = ["bash", "zsh", "fish"]


@click.command(
    "completion", add_help_option=False, short_help="Print a completion script for a shell."
)
@click.argument("shell", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
def completion(world: World, *, shell: str) -> Output:
    """Print a script that completes commands, options and their values, for icctl and ic.

    It is a text that calls nobody; print it again after an upgrade.

    \b
    Examples:
      source <(icctl completion bash)
      icctl completion zsh > ~/.zfunc/_icctl
      icctl completion fish > ~/.config/fish/completions/icctl.fish
    """
    script: str = import_module(f"icd.app.shells.{shell}").script()
    return render.to_json({"script": script}) if world.json else Output(0, script.encode())


COMMANDS = [completion]
