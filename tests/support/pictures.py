"""Pictures of screens for the documentation: real commands on a real terminal, drawn as SVG.

`make pictures` plays them in a new project and writes docs/images.  Ids and ages are those of the
moment, so a test does not compare them: tests/app/test_screens.py does that for screens.
"""

import asyncio
import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style

from icd.app.human import text
from icd.app.invocation import World
from icd.db.paths import Where
from icd.top import projects
from icd.top.page import Page
from tests.support import processes
from tests.support.processes import CLEAN, running

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COLUMNS, ROWS = 92, 14
_CELL, _LINE, _MARGIN = 8.0, 19, 16
_STYLED = re.compile(r"\x1b\[(\d{1,2})m")
_CLASSES = {"1": "b", "2": "d", "7": "i", "31": "r", "32": "g", "33": "y", "36": "c"}
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_STYLE = (
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328;white-space:pre}"
    ".back{fill:#f6f8fa;stroke:#d0d7de}.b{font-weight:700}.d{fill:#656d76}.r{fill:#cf222e}"
    ".g{fill:#1a7f37}.y{fill:#9a6700}.c{fill:#0550ae}.i{fill:#f6f8fa}rect.i{fill:#1f2328;shape-rendering:crispEdges}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117;stroke:#30363d}"
    ".d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#d29922}.c{fill:#79c0ff}"
    ".i{fill:#0d1117}rect.i{fill:#e6edf3}}"
)

# What is there before a picture is taken.
SCENE = """
icctl init && icctl trust
run=$(icctl run create --project=. --goal='Parse the log in one pass')
icctl run artifact add "$run" --phase=brainstorm --path=/etc/hostname
icctl run advance "$run" && icctl run skip "$run" strategized --reason='it is small'
icctl run agent add "$run" --name=reviewer
icctl run create --project=. --goal='Make hooks cheap enough for nine engineers' --scope-id=b2
done=$(icctl run create --project=. --goal='Write down why') && icctl run cancel "$done"
icctl dispatch spawn --name=lint --run="$run" -- true
tests=$(icctl dispatch spawn --name=tests --run="$run" -- sh -c 'echo 4 failed, 120 passed; exit 3')
icctl dispatch wait "$tests"
icctl dispatch spawn --name=fixer --run="$run" -- sh -c 'echo "120 of 124 tests pass"; sleep 600'
for n in 9 6 2; do
    icctl discovery submit --source=arxiv --source-id=$n --title="Find $n about logs" --score=0.$n
done
icctl sentinel check drift session-1 --interval=10m
icctl lease acquire sprint B-12 --ttl=30m --owner=session-1
icctl session start --session=session-1
icctl lock acquire deploy web --owner=1:elsewhere
icctl coordination reserve --owner=session-1 --path=app.py --ttl=15m --reason='a larger change'
"""
PICTURES = {
    "lists": ["icctl run list", "icctl dispatch list", "icctl discovery list", "icctl lease list"],
    "timeline": ["icctl run snapshot $(icctl run list --plain | tail -1 | cut -f1)"],
    "status": ["icctl status"],
}
# Tabs of `icctl top`, by their place.
TOPS = {"top": 2, "top-held": 4}


def play(project: str, env: dict[str, str]) -> dict[str, list[str]]:
    subprocess.run(
        ["bash", "-c", SCENE], cwd=project, env=env, stdout=subprocess.DEVNULL, check=False
    )
    try:
        found = {
            name: [line for command in commands for line in _shown(command, project, env)]
            for name, commands in PICTURES.items()
        }
        return found | {name: asyncio.run(_top(project, env, tab)) for name, tab in TOPS.items()}
    finally:
        subprocess.run(
            ["bash", "-c", "icctl dispatch kill $(icctl dispatch list --active | cut -f1)"],
            cwd=project, env=env, stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip


def _shown(command: str, project: str, env: dict[str, str]) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    playing = subprocess.Popen(
        ["bash", "-c", command], cwd=project, env=env, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    data = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while chunk := _read(terminal.fileno()):
            data += chunk
    playing.wait()
    typed = re.sub(r"\$\(.*\)", "$RUN", command)
    return [f"\x1b[2m$\x1b[0m \x1b[1m{typed}\x1b[0m", *data.decode().replace("\r", "").split("\n")]


async def _top(project: str, env: dict[str, str], tab: int) -> list[str]:
    """A tab of `icctl top`, as textual draws it, in lines with our colours."""
    world = World([], project, time.monotonic() + 60, env=env, where=Where(project))
    choice = projects.choose(world.where, project, no_daemon=False)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        page = Page(world, choice, tab)
        async with page.run_test(size=(COLUMNS, ROWS)) as pilot:
            while not (page.feed.report and page.listing.rows):
                await pilot.pause(0.05)
            await pilot.pause(2.5)  # files are looked at
            strips = page.screen._compositor.render_strips()
            return ["".join(map(_coded, strip)).rstrip() for strip in strips]


def _coded(part: Segment) -> str:
    style = part.style or Style()
    colour = _COLOURS.get(style.color.name if style.color else "", "")
    code = "7" if style.reverse else colour or ("1" if style.bold else "2" if style.dim else "")
    return f"\x1b[{code}m{part.text}\x1b[0m" if code else part.text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # what Linux says when the last one has closed the other end
        return b""


def draw(lines: list[str]) -> str:
    while lines and not lines[-1]:
        lines = lines[:-1]
    width, height = round(COLUMNS * _CELL + 2 * _MARGIN), len(lines) * _LINE + 2 * _MARGIN
    is_whole = any("\x1b[7m" in line for line in lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{width - 1}" height="{height - 1}" x=".5" y=".5" rx="8"/>',
    ]
    for number, line in enumerate(lines):
        y = _MARGIN + number * _LINE + 14
        parts += _backs(line, y)
        shown = _placed(line, y) if is_whole else _spans(line)
        parts.append(f'<text x="{_MARGIN}" y="{y}" xml:space="preserve">{shown}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _backs(line: str, y: int) -> Iterator[str]:
    """What stands behind text whose colours are the other way round."""
    kind, x = "", 0
    for number, part in enumerate(_STYLED.split(line)):
        if number % 2:
            kind = part
            continue
        if kind == "7":
            place = f'x="{_MARGIN + x * _CELL:g}" y="{y - 14}"'
            yield f'<rect class="i" {place} width="{len(part) * _CELL:g}" height="{_LINE}"/>'
        x += len(part)


def _placed(line: str, y: int) -> str:
    """Each part where its cells are, in whatever font: what stands behind text is as wide as it."""
    found, kind, x = [], "", 0
    for number, part in enumerate(_STYLED.split(line)):
        if number % 2:
            kind = _CLASSES.get(part, "")
            continue
        inner = part.strip(" ")
        start = x + len(part) - len(part.lstrip(" "))
        x += text.width(part)
        if inner:
            place = f'x="{_MARGIN + start * _CELL:g}" y="{y}"'
            size = f'textLength="{text.width(inner) * _CELL:g}"'
            word = f' class="{kind}"' if kind else ""
            found.append(f"<tspan {place} {size}{word}>{html.escape(inner)}</tspan>")
    return "".join(found)


def _spans(line: str) -> str:
    found, kind = [], ""
    for number, part in enumerate(_STYLED.split(line)):
        if number % 2:
            kind = _CLASSES.get(part, "")
        elif part:
            told = html.escape(part)
            found.append(f'<tspan class="{kind}">{told}</tspan>' if kind else told)
    return "".join(found)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ic-", dir="/tmp") as root, running() as daemon:
        project = Path(root) / "parser"
        (project / ".git").mkdir(parents=True)
        path = f"{processes.DOORS / 'native'}:{CLEAN['PATH']}"
        env = {**CLEAN, "PATH": path, "HOME": root, "INTERCORE_SOCKET": daemon.socket,
               "TERM": "xterm", "TZ": "UTC", "TMPDIR": root, "INTERCORE_LOCK_DIR": f"{root}/locks"}  # fmt: skip
        shown = play(str(project), env)
    for name, lines in shown.items():
        (IMAGES / f"{name}.svg").write_text(draw(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
