"""The picture of the README: a real session in a real terminal, drawn as an SVG.

`make docs` (or `make picture`) plays the session in a new project and writes the file;
`tests/test_pages.py` plays it again and compares.
Nothing in the session depends on the time or the machine, so the picture changes only when the
program does.
"""

import html
import os
import pty
import subprocess
import tempfile
from itertools import accumulate
from pathlib import Path

from tests.support.processes import CLEAN, running

PICTURE = Path(__file__).parents[2] / "docs" / "session.svg"

# Comments are typed, too: they say what to look at.
SESSION = """\
icctl init >/dev/null
# Eight hooks at once: exactly one may act.
for i in {1..8}; do icctl sentinel check remind session-1 --interval=10m & done | sort | uniq -c
# Eight writers at once: no lost update, no "database is locked".
for i in {1..8}; do icctl state incr edits session-1 & done | sort -n | xargs
# One session per file, and the claim outlives the hook that made it.
icctl lease acquire file app.py --owner=session-1 --ttl=10m >/dev/null && echo "mine"
icctl lease acquire file app.py --owner=session-2 --ttl=10m 2>/dev/null || echo "taken"
"""

_MARK = "--- end of step ---"
_COLUMN, _LINE, _GAP, _MARGIN, _BAR = 8.6, 20, 12, 16, 32
_INK = {"prompt": "#7ee787", "comment": "#8b949e", "output": "#e6edf3", "command": "#ffffff"}


def record() -> list[tuple[str, str]]:
    """Kinds and lines, as the terminal showed them."""
    shown = []
    commands = SESSION.splitlines()
    for command, output in zip(commands, _play(commands), strict=True):
        shown.append(("comment" if command.startswith("#") else "command", command))
        shown += [("output", line) for line in output.splitlines()]
    return shown


def _play(commands: list[str]) -> list[str]:
    script = "".join(f"{command}\necho '{_MARK}'\n" for command in commands)
    with tempfile.TemporaryDirectory(prefix="ic-picture-", dir="/tmp") as root, running() as daemon:
        (Path(root) / ".git").mkdir()
        env = {**CLEAN, "HOME": root, "INTERCORE_SOCKET": daemon.socket, "TERM": "dumb"}
        *outputs, rest = _on_a_terminal(["bash", "-c", script], root, env).split(f"{_MARK}\n")
    assert rest == ""
    return outputs


def _on_a_terminal(command: list[str], cwd: str, env: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    playing = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    data = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while chunk := _read(terminal.fileno()):
            data += chunk
    assert playing.wait() == 0
    return data.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # what Linux says when the last one has closed the other end
        return b""


def draw(lines: list[tuple[str, str]]) -> str:
    width = round(_MARGIN * 2 + _COLUMN * (2 + max(len(line) for _, line in lines)))
    rows = _rows([kind for kind, _ in lines])
    height = rows[-1] + _LINE
    dots = "".join(
        f'<circle cx="{20 + 18 * n}" cy="18" r="6" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}" role="img">'
            ),
            "<title>A terminal session with icctl</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
            dots,
            (
                '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
                'font-size="14" xml:space="preserve">'
            ),
            *(_text(y, kind, line) for y, (kind, line) in zip(rows, lines, strict=True)),
            "</g>",
            "</svg>\n",
        ]
    )


def _rows(kinds: list[str]) -> list[int]:
    """The base line of each line; a comment begins a new part, below a gap."""
    gaps = accumulate(_GAP if kind == "comment" else 0 for kind in kinds)
    return [_BAR + 14 + _LINE * number + gap for number, gap in enumerate(gaps)]


def _text(y: int, kind: str, line: str) -> str:
    prompt = f'<tspan fill="{_INK["prompt"]}">$ </tspan>' if kind == "command" else ""
    typed = f'<tspan fill="{_INK[kind]}">{html.escape(line, quote=False)}</tspan>'
    return f'<text x="{_MARGIN}" y="{y}">{prompt}{typed}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw(record()), encoding="utf-8")
