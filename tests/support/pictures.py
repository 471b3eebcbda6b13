"""Pictures of screens for the documentation: real commands on a real terminal, drawn as SVG.

`make pictures` plays them in a new project and writes docs/images.  Ids and ages are those of the
moment, so a test does not compare them: tests/app/test_screens.py does that for screens.
"""

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
from pathlib import Path

from tests.support import processes
from tests.support.processes import CLEAN, running

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COLUMNS = 92
_CELL, _LINE, _MARGIN = 8.0, 19, 16
_STYLED = re.compile(r"\x1b\[(\d{1,2})m")
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}
_STYLE = (
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328;white-space:pre}"
    ".back{fill:#f6f8fa;stroke:#d0d7de}.b{font-weight:700}.d{fill:#656d76}.r{fill:#cf222e}"
    ".g{fill:#1a7f37}.y{fill:#9a6700}.c{fill:#0550ae}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117;stroke:#30363d}"
    ".d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#d29922}.c{fill:#79c0ff}}"
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
icctl dispatch spawn --name=fixer --run="$run" -- sleep 600
for n in 9 6 2; do
    icctl discovery submit --source=arxiv --source-id=$n --title="Find $n about logs" --score=0.$n
done
icctl sentinel check drift session-1 --interval=10m
icctl lease acquire sprint B-12 --ttl=30m --owner=session-1
"""
PICTURES = {
    "lists": ["icctl run list", "icctl dispatch list", "icctl discovery list", "icctl lease list"],
    "timeline": ["icctl run snapshot $(icctl run list --plain | tail -1 | cut -f1)"],
    "status": ["icctl status"],
}


def play(project: str, env: dict[str, str]) -> dict[str, list[str]]:
    subprocess.run(
        ["bash", "-c", SCENE], cwd=project, env=env, stdout=subprocess.DEVNULL, check=False
    )
    try:
        return {
            name: [line for command in commands for line in _shown(command, project, env)]
            for name, commands in PICTURES.items()
        }
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


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # what Linux says when the last one has closed the other end
        return b""


def draw(lines: list[str]) -> str:
    while lines and not lines[-1]:
        lines = lines[:-1]
    width, height = round(COLUMNS * _CELL + 2 * _MARGIN), len(lines) * _LINE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect class="back" width="{width - 1}" height="{height - 1}" x=".5" y=".5" rx="8"/>',
    ]
    for number, line in enumerate(lines):
        y = _MARGIN + number * _LINE + 14
        parts.append(f'<text x="{_MARGIN}" y="{y}" xml:space="preserve">{_spans(line)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _spans(line: str) -> str:
    found, kind = [], ""
    for number, part in enumerate(_STYLED.split(line)):
        if number % 2:
            kind = _CLASSES.get(part, "")
        elif part:
            text = html.escape(part)
            found.append(f'<tspan class="{kind}">{text}</tspan>' if kind else text)
    return "".join(found)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ic-", dir="/tmp") as root, running() as daemon:
        project = Path(root) / "parser"
        (project / ".git").mkdir(parents=True)
        path = f"{processes.DOORS / 'native'}:{CLEAN['PATH']}"
        env = {**CLEAN, "PATH": path, "HOME": root, "INTERCORE_SOCKET": daemon.socket,
               "TERM": "xterm", "TZ": "UTC", "TMPDIR": root}  # fmt: skip
        shown = play(str(project), env)
    for name, lines in shown.items():
        (IMAGES / f"{name}.svg").write_text(draw(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
