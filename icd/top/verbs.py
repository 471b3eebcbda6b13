"""top: a live view of what agents do.

It runs in the caller's own process, and goes on until it is told to end.
"""

import os
import sys
from typing import Annotated

from msgspec import Struct

from icd.app.invocation import Local, Output, World
from icd.app.verb import Command, Option
from icd.errors import TopNotInstalled, Usage

NAMES = (
    "events", "runs", "dispatches", "sentinels", "held", "sessions", "state", "discoveries",
    "failures",
)  # fmt: skip


class Top(Struct):
    """Show live what agents do: events, runs, dispatches, sentinels, what is held, and more.

    Shows the project of the current directory and all others that the daemon has open; --project
    shows one.
    The daemon pushes what is new; its restart is told, and survived.
    Keys are on the screen; ? lists all.
    What ends, releases or resets something asks first; --read-only offers none of it.
    --once prints one screen, for scripts.
    """

    project: Annotated[str | None, Option("--project", "Show only the project of DIR.", "DIR")] = (
        None
    )
    tab: Annotated[
        str | None,
        Option("--tab", "Begin with this tab, such as runs; with --once, print only it.", "NAME"),
    ] = None
    read_only: Annotated[bool, Option("--read-only", "Offer nothing that changes something.")] = (
        False
    )
    once: Annotated[bool, Option("--once", "Print one screen and exit.")] = False


def ask_top(world: World, f: Top) -> Local:
    if world.json:
        raise Usage("top has no JSON", hint="use 'icctl status --json', or a list with --json")

    if f.tab is not None and f.tab not in NAMES:
        raise Usage(f"there is no tab {f.tab}", hint=f"pass one of {', '.join(NAMES)}")
    place = None if f.tab is None else NAMES.index(f.tab)

    def run(_ask: object) -> Output:
        from icd.top import projects

        directory = f.project and os.path.normpath(os.path.join(world.cwd, f.project))
        choice = projects.choose(world.where, directory, no_daemon=world.no_daemon)
        if f.once:
            from icd.top import once, tabs

            return once.show(world, choice, None if place is None else tabs.TABS[place])
        require_textual()
        is_served = "TEXTUAL_DRIVER" in os.environ  # to a browser
        if not is_served and not all(file.isatty() for file in (sys.stdin, sys.stdout, sys.stderr)):
            raise Usage("top needs a terminal", hint="'icctl top --once' prints one screen")
        from icd.top.page import Page

        page = Page(world, choice, place or 0, is_read_only=f.read_only)
        return Output(page.run() or page.return_code or 0)

    return Local(run, has_own_timeout=True, is_about_project=False)


def require_textual() -> None:
    """Load it, wherever Python finds packages: a command is started without looking everywhere."""
    if sys.flags.no_site:
        import site

        site.main()
    try:
        import textual  # noqa: F401
    except ImportError as exc:
        told = "the view needs the package textual, which is not installed"
        raise TopNotInstalled(told) from exc


VERBS = [
    Command(
        "top",
        Top,
        ask_top,
        summary="Show live what agents do.",
        examples=["icctl top", "icctl top --project=. --tab=runs", "icctl top --once"],
    ),
]
