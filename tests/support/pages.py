"""Pages that can be played: the files that they show are written, and their sessions run.

A block of `bash` that names its file in a comment (`# .claude/hooks/x.sh (Stop): why`) is that file.
A block of `console` is a session: `$ ` begins a command, `> ` continues it, the rest is its output.
In an output, `...` stands for anything.
"""

import re
import subprocess
from pathlib import Path

_MARK = "--- end of step ---"
_FILE = re.compile(r"^# (\S+\.sh)\b", re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def sections(text: str) -> dict[str, str]:
    """What stands below each heading of the second level."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def files(text: str) -> dict[str, str]:
    """By path, what the page shows of them."""
    found = {}
    for block in blocks(text, "bash"):
        named = _FILE.search(block)
        assert named, f"a block of bash names no file: {block[:60]!r}"
        found[named[1]] = block
    return found


def write(root: Path, shown: dict[str, str]) -> None:
    for name, content in shown.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        path.chmod(0o755)


def steps(text: str) -> list[tuple[str, str]]:
    """The commands of all sessions, with the output that the page promises."""
    found = []
    for block in blocks(text, "console"):
        first, *rest = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert first == "", "a session starts with a command"
        found += [_step(part.splitlines(keepends=True)) for part in rest]
    return found


def _step(lines: list[str]) -> tuple[str, str]:
    more = [line[2:] for line in lines[1:] if line.startswith("> ")]
    output = [line for line in lines[1:] if not line.startswith("> ")]
    return "".join([lines[0], *more]), "".join(output)


def play(session: list[tuple[str, str]], root: Path, env: dict[str, str]) -> None:
    """Run the commands in one shell; each must print what was promised, on stdout or stderr."""
    script = "".join(f"{command}echo '{_MARK}'\n" for command, _ in session)
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    *outputs, rest = ran.stdout.split(f"{_MARK}\n")
    assert rest == "", f"the session ended early: {ran.stdout}"
    for (command, promised), output in zip(session, outputs, strict=True):
        pattern = ".*".join(map(re.escape, promised.split("...")))
        assert re.fullmatch(pattern, output, re.DOTALL), (
            f"$ {command}\npromised: {promised}\nprinted: {output}"
        )
