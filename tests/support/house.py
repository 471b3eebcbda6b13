"""The counts of the house: how many guesses and files a stranger needs.  `make house` prints them.

What must not slip back is held by tests/test_house.py.
"""

import ast
import inspect
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from icd.app import registry
from icd.app.verb import Method

ROOT = Path(__file__).parents[2]
PRODUCT = ("icd", "icctl")
GENERATED = "icctl/api/made/"

# A verb whose word stands in no other command: the files that name it are those it took.
EXAMPLE = ("state", "touch")
# Where an engineer who knows servers looks first.
PARTS = {
    "accept loop": "server/net/listener.py",
    "connections": "server/net/connections.py",
    "session of a connection": "server/net/session.py",
    "framing": "server/net/framing.py",
    "codec": "server/net/jsonrpc.py",
    "socket and owner lock": "server/net/socket_claim.py",
    "queue of calls": "server/stores/call_queue.py",
    "thread of a database": "server/stores/db_thread.py",
    "open databases": "server/stores/registry.py",
    "streams": "server/subscriptions/stream.py",
    "status": "server/metrics/status.py",
    "limits": "server/limits.py",
    "reload": "server/reload.py",
    "life cycle": "server/lifecycle.py",
}
# Commands that stand alone have no noun to look under: what they are about.
TOPICS = {
    "database": ("init", "health", "version", "backup", "restore", "export", "import"),
    "daemon": ("ping", "status", "metrics", "service reload"),
    "shell": ("lib-path", "completion"),
}
RETIRED = re.compile(r"\b(whoever|somebody|nobody)\b", re.IGNORECASE)
# Phrases that a person must not meet again, in what the program prints.
RETIRED_PHRASES = re.compile(
    r"decide anew|given to you, with chown|hand to hand|keyhole frame has|does not tell an end|"
    r"redelivered} of them|marked with ! below|needs to be done|mistake in the command line|see below|"
    r"always-warm|who is to hold|upkeep failed|nobody knows whom|expected that it does not|"
    r"project of yours|daemon of yours|do(es)? not go (with|together)|exclude each other|"
    r"whatever the settings|read on from|an expected no\b|has had its event|see to it that this ends|"
    r"go on with the installed|nobody polls|have it given to you|small, always|made? by hand to see why"
)


class Row(NamedTuple):
    point: str
    was: str
    is_now: str
    target: str


def tracked(*places: str) -> list[str]:
    """The files that people write: what is made from the rows is read as the rows."""
    found = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *places],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    mine = [name for name in found if name and not name.startswith(GENERATED)]
    return [name for name in mine if (ROOT / name).exists()]


def source(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


# --- modules ---


def modules() -> dict[str, str]:
    """All modules of the product, by name, with their files."""
    files = [name for name in tracked(*PRODUCT) if name.endswith(".py")]
    return {name[:-3].replace("/", ".").removesuffix(".__init__"): name for name in files}


def importers() -> dict[str, set[str]]:
    """Which modules import which, wherever the statement stands."""
    known, found = modules(), defaultdict(set)
    for module, file in known.items():
        for node in ast.walk(ast.parse(source(file))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in known else node.module for name in names]
            for name in names:
                if name in known:
                    found[name].add(module)
    return found


def proper() -> dict[str, str]:
    """Modules that are not the head of a package."""
    return {name: file for name, file in modules().items() if not file.endswith("__init__.py")}


def folders() -> Counter[str]:
    return Counter(str(Path(file).parent) for file in proper().values())


def lines(name: str) -> int:
    return source(name).count("\n")


def product_lines() -> int:
    kinds = (".py", ".c", ".h", ".sql")
    return sum(lines(f) for f in tracked(*PRODUCT) if f.endswith(kinds) or "/bin/" in f)


def imported_once() -> list[str]:
    """Modules that exactly one other imports, and that the registry does not load by name."""
    found = importers()
    named = {f"icd.{module}" for module, _ in registry.GROUPS.values()}
    named |= {f"icd.{module}" for module in registry.SINGLES.values()}
    return sorted(name for name in proper() if len(found[name]) == 1 and name not in named)


def tiny() -> list[str]:
    return sorted(name for name, file in proper().items() if lines(file) < 40)


# --- functions ---


def function_lengths() -> list[int]:
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for file in modules().values()
        for node in ast.walk(ast.parse(source(file)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def broad_excepts() -> int:
    return sum(source(file).count("noqa: BLE001") for file in modules().values())


def files_with(word: str, *places: str) -> list[str]:
    return [name for name in tracked(*places) if word in _text(name)]


def _text(name: str) -> str:
    try:
        return source(name)
    except UnicodeDecodeError:
        return ""


def retired_words() -> int:
    files = tracked(*PRODUCT, "lib-intercore.sh")
    return sum(len(RETIRED.findall(_text(name))) for name in files)


def retired_phrases() -> list[str]:
    """The files that people read with a phrase that was replaced."""
    pages = [name for name in tracked("docs", "*.md") if "CHANGELOG" not in name]
    files = tracked(*PRODUCT, "lib-intercore.sh", "pyproject.toml", "CITATION.cff") + pages
    return [name for name in files if RETIRED_PHRASES.search(_text(name))]


# --- verbs ---


def files_of_a_verb(noun: str, verb: str) -> list[str]:
    """Files that name a verb, apart from pages that are made from it or tell of it."""
    named = re.compile(rf"\b{noun}[ .]{verb}\b")
    files = tracked(*PRODUCT, "tests", "lib-intercore.sh", "CHANGELOG.md")
    found = {name for name in files if named.search(_text(name))}
    store = f"icd/features/{noun}/store.py"
    found |= {store} if f"def {verb}(" in source(store) else set()
    return sorted(found - {"tests/support/house.py", "tests/test_house.py"})


def rooms() -> dict[str, bool]:
    """For every command, whether its row stands in the room of its noun, or a file named like it."""
    found: dict[str, bool] = {}
    for name, command in registry.commands().items():
        parts = command.row.form.__module__.split(".")
        words = [*name.split(), *(topic for topic, names in TOPICS.items() if name in names)]
        found[name] = any(_is_called(part, word) for part in parts for word in words)
    return found


def _is_called(part: str, word: str) -> bool:
    forms = {word, f"{word}s", f"{word}es", f"{word[:-1]}ies", {"db": "database"}.get(word)}
    return part in forms


def fields_of_a_method() -> int:
    return len(inspect.signature(Method.__init__).parameters) - 1


# --- the walk of one call ---


def walk() -> tuple[int, int, int]:
    """Files, changes of file and functions on the way of one warm `sentinel check`.

    The fewest of three times: on a busy machine the daemon's own looks fall into it.
    """
    return min(_walk() for _ in range(3))


def _walk() -> tuple[int, int, int]:
    said = subprocess.run(
        [sys.executable, "-m", "tests.support.walk"],
        env={**os.environ, "INTERCORE_IDLE_SECONDS": "3600"},  # its own looks are no part of it
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    files, changes, calls = map(int, said.stdout.split()[:3])
    return files, changes, calls


def table() -> list[Row]:
    sizes, found = function_lengths(), rooms()
    guessed = 100 * sum(found.values()) / len(found)
    parts = sum((ROOT / "icd" / path).exists() for path in PARTS.values())
    folder, most = folders().most_common(1)[0]
    files, changes, _ = walk()
    return [
        Row("files for a new verb (state touch)", "12", f"{len(files_of_a_verb(*EXAMPLE))}", "≤ 4"),
        Row("commands found in one guess", "65 to 75 %", f"{guessed:.0f} %", "≥ 97 %"),
        Row("parts of a server found in one guess", "4 of 14", f"{parts} of {len(PARTS)}", "14"),
        Row("largest folder", "65", f"{most} ({folder})", "≤ 15"),
        Row("modules", "305", f"{len(modules())}", "≤ 190"),
        Row("… imported by one other", "98", f"{len(imported_once())}", "≤ 35"),
        Row("… under 40 lines", "20", f"{len(tiny())}", "≤ 5"),
        Row("lines of the product (0.4.0: 38,564)", "43,551", f"{product_lines():,}", "≤ 32,000"),
        Row("files on the way of a warm sentinel check", "33", f"{files}", "≤ 18"),
        Row("… and changes of file", "102", f"{changes}", "≤ 45"),
        Row("fields of a method", "17", f"{fields_of_a_method()}", "≤ 9"),
        Row("files that spell one column (budget_warn_pct)", "11",
            f"{len(files_with('budget_warn_pct', *PRODUCT))}", "≤ 4"),
        Row("broad excepts", "31", f"{broad_excepts()}", "≤ 10"),
        Row("whoever, somebody, nobody", "382", f"{retired_words()}", "< 30"),
        Row("function length: median, p90", "6, 19",
            f"{sizes[len(sizes) // 2]}, {sizes[len(sizes) * 9 // 10]}", "as before"),
    ]  # fmt: skip


def main() -> None:
    rows = table()
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    main()
