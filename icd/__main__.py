"""`icd`: the daemon's own command line."""

# ruff: noqa: E402 -- before all that is loaded
import gc

gc.disable()  # until everything is loaded: there is no garbage in it

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from icd import __version__
from icd.errors import IcError, Misconfigured, PermissionRefused

if TYPE_CHECKING:
    import click

# EX_CONFIG: the unit tells systemd not to start us again.
CONFIGURATION = 78

Given = dict[str, Any]  # by the names of `serve`


class Option(NamedTuple):
    """Without `metavar` it is a switch."""

    name: str
    metavar: str | None
    help: str

    @property
    def field(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")


SERVE = (
    Option("--socket", "PATH", "Path of the socket to listen on."),
    Option("--config", "FILE", "Read the settings from this file."),
    Option(
        "--durability",
        "normal|full",
        "Let commits survive process crashes (normal), or power loss as well (full).",
    ),
    Option("--idle-seconds", "N", "Prune and checkpoint a database after this idle time."),
    Option("--exit-idle", None, "Exit after exit_idle_seconds without work."),
    Option(
        "--log-to-file",
        None,
        "Log to intercore/icd.log below $XDG_STATE_HOME; stderr hears why a start failed.",
    ),
    Option("--preflight", None, "Check that the daemon can start, then exit; used by a reload."),
)


def main(words: Sequence[str] | None = None) -> None:
    """A line that is plain and right starts a daemon without click, which takes as long again."""
    words = sys.argv[1:] if words is None else words
    given = plain(words)
    if given is None:
        commands()(words)
    else:
        serve(**given)


def plain(words: Sequence[str]) -> Given | None:
    """What a line of `serve` gives; None: it is for click, which says what is wrong."""
    if words[:1] != ["serve"]:
        return None
    options = {option.name: option for option in SERVE}
    given: Given = {option.field: None if option.metavar else False for option in SERVE}
    rest = iter(words[1:])
    for word in rest:
        name, equals, value = word.partition("=")
        option = options.get(name)
        if option is None or (equals and option.metavar is None):
            return None
        if option.metavar is None:
            given[option.field] = True
            continue
        value = value if equals else next(rest, "-")
        if value.startswith("-"):
            return None
        given[option.field] = value
    return given


def commands() -> "click.Group":
    """The commands as click has them, for help, mistakes and everything but `serve`."""
    from inspect import cleandoc

    import click

    # False would have click take an option without its value for a switch.
    options: list[click.Parameter] = [
        click.Option([o.name], metavar=o.metavar, is_flag=o.metavar is None or None, help=o.help)
        for o in SERVE
    ]
    directory = click.Argument(["directory"], metavar="DIR")
    group = click.Group(
        commands=[
            click.Command("serve", None, serve, options, cleandoc(serve.__doc__ or "")),
            click.Command("manual", None, manual, [directory], cleandoc(manual.__doc__ or "")),
        ],
        help="The daemon of intercore: one per user, many project databases.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    version = click.version_option(__version__, prog_name="icd", message="%(prog)s %(version)s")
    return version(group)


def serve(
    socket: str | None,
    config: str | None,
    *,
    exit_idle: bool,
    log_to_file: bool,
    preflight: bool,
    **flags: str | None,
) -> None:
    """Serve in the foreground until SIGTERM or Ctrl-C; logs go to stderr.

    SIGHUP reloads the installed version without losing a call.
    The exit status is 78 for errors that a restart cannot fix.
    """
    from icd.server import start_failures as startups
    from icd.server.logs import Starter

    _fill_standard_descriptors()
    starter = Starter()
    try:
        if log_to_file and not preflight:
            starter.replace_by_file(os.environ)
        from icd.server.main import main as run  # its failures are logged, too

        status = run(
            socket, config, flags,
            starter=starter, exit_idle=exit_idle, preflight=preflight,
        )  # fmt: skip
    except IcError as exc:
        hint = f"; {exc.hint}" if exc.hint else ""
        incurable = isinstance(exc, Misconfigured | PermissionRefused)
        status = CONFIGURATION if incurable else exc.exit
        starter.tell(f"icd: {exc.message}{hint}\n", is_failure=bool(status))
        if status and not preflight:  # a daemon that runs already is no failure
            startups.note(socket, f"{exc.message}{hint}")
    except OSError as exc:
        starter.tell(f"icd: {_explain(exc)}\n")
        status = 2
        startups.note(socket, _explain(exc))
    with contextlib.suppress(OSError):  # a terminal that was closed
        sys.stdout.flush()
        sys.stderr.flush()
    # aiosqlite's threads would keep a daemon that is done alive if a database hangs.
    os._exit(status)


def manual(directory: str) -> None:
    """Write the manual pages below DIR, such as ~/.local/share/man."""
    from icd.app.reference.manual import pages

    try:
        for path, page in pages(commands()).items():
            file = os.path.join(directory, path)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(page)
            sys.stdout.write(f"{file}\n")
    except OSError as exc:
        sys.stderr.write(
            f"icd: cannot write the manual: {exc}; use a directory that you can write to\n"
        )
        sys.exit(2)


def _explain(exc: OSError) -> str:
    if exc.errno == errno.EPERM and exc.filename is None:  # a mode that is wrong is EACCES
        return f"Unix sockets are not permitted here: {exc.strerror}; start it outside the sandbox"
    return f"{exc}; check the socket's directory"


def _fill_standard_descriptors() -> None:
    """A closed stderr would otherwise become the socket, and the log be written into it."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or sys.stderr


if __name__ == "__main__":
    main()
