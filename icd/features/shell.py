"""lib-path, completion: what a shell sources."""

import os
from typing import Annotated, Literal

from msgspec import Struct

from icd.app import render
from icd.app.invocation import Output, World
from icd.app.reference import completion
from icd.app.verb import Argument, Command

LIBRARY = "lib-intercore.sh"
# Beside the packages in a checkout, inside this one when installed.
PLACES = [os.path.join(os.path.dirname(__file__), up, LIBRARY) for up in ("..", "../..")]
PATH = os.path.abspath(next(filter(os.path.exists, PLACES), PLACES[0]))


class LibPath(Struct):
    """Print the path of the library for bash hooks."""


class Completion(Struct):
    """Print a completion script for icctl and ic: commands, options and their values.

    The script starts no program; print it again after an upgrade.
    """

    shell: Annotated[
        Literal["bash", "zsh", "fish"], Argument("bash|zsh|fish", "Shell to complete for.")
    ]


def print_path(world: World, _f: LibPath) -> Output:
    return render.to_json({"path": PATH}) if world.json else render.text(PATH)


def print_script(world: World, f: Completion) -> Output:
    script = completion.script(f.shell)
    return render.to_json({"script": script}) if world.json else Output(0, script.encode())


VERBS = [
    Command(
        "lib-path",
        LibPath,
        print_path,
        summary="Print the path of the bash library.",
        examples=['source "$(icctl lib-path)"'],
    ),
    Command(
        "completion",
        Completion,
        print_script,
        summary="Print a completion script for a shell.",
        examples=[
            "source <(icctl completion bash)",
            "icctl completion zsh > ~/.zfunc/_icctl",
            "icctl completion fish > ~/.config/fish/completions/icctl.fish",
        ],
    ),
]
