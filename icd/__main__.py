"""`icd`: the daemon's own command line."""

# ruff: noqa: E402 -- before all that is loaded
import gc

gc.disable()  # until everything is loaded: there is no garbage in it

import contextlib
import errno
import os
import sys

import click

from icd import __version__
from icd.errors import IcError, Misconfigured, PermissionRefused

# EX_CONFIG: the unit tells systemd not to start us again.
CONFIGURATION = 78


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="icd", message="%(prog)s %(version)s")
def main() -> None:
    """The daemon of intercore: one per user, many project databases."""


@main.command()
@click.option("--socket", "socket_path", metavar="PATH", help="Path of the socket to listen on.")
@click.option("--config", "config_file", metavar="FILE", help="Read the settings from this file.")
@click.option(
    "--durability",
    metavar="normal|full",
    help="Let commits survive process crashes (normal), or power loss as well (full).",
)
@click.option(
    "--idle-seconds", metavar="N", help="Prune and checkpoint a database after this idle time."
)
@click.option("--exit-idle", is_flag=True, help="Exit after exit_idle_seconds without work.")
@click.option(
    "--log-to-file",
    is_flag=True,
    help="Log to intercore/icd.log below $XDG_STATE_HOME; stderr hears why a start failed.",
)
@click.option(
    "--preflight",
    is_flag=True,
    help="Check that the daemon can start, then exit; used by a reload.",
)
def serve(
    socket_path: str | None,
    config_file: str | None,
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
            socket_path, config_file, flags,
            starter=starter, exit_idle=exit_idle, preflight=preflight,
        )  # fmt: skip
    except IcError as exc:
        hint = f"; {exc.hint}" if exc.hint else ""
        incurable = isinstance(exc, Misconfigured | PermissionRefused)
        status = CONFIGURATION if incurable else exc.exit
        starter.tell(f"icd: {exc.message}{hint}\n", is_failure=bool(status))
        if status and not preflight:  # a daemon that runs already is no failure
            startups.note(socket_path, f"{exc.message}{hint}")
    except OSError as exc:
        starter.tell(f"icd: {_explain(exc)}\n")
        status = 2
        startups.note(socket_path, _explain(exc))
    with contextlib.suppress(OSError):  # a terminal that was closed
        sys.stdout.flush()
        sys.stderr.flush()
    # aiosqlite's threads would keep a daemon that is done alive if a database hangs.
    os._exit(status)


@main.command()
@click.argument("directory", metavar="DIR")
def manual(directory: str) -> None:
    """Write the manual pages below DIR, such as ~/.local/share/man."""
    from icd.app.reference.manual import pages

    try:
        for path, page in pages(main).items():
            file = os.path.join(directory, path)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(page)
            click.echo(file)
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
