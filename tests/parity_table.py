"""Command lines that cover the contract's sections 1 to 6, with the exit status of each."""

from collections.abc import Callable
from pathlib import Path

import msgspec

BIG = b'"' + b"x" * 102_401 + b'"'
DEEP = b"[" * 21 + b"]" * 21
LONG = b"[" + b"{}," * 10_000 + b"{}]"
SECRET = b'{"note":"ghp_0123456789abcdefghijklmnopqrstuvwxyz"}'


class Step(msgspec.Struct):
    """A command line; `typed` means that it becomes one call of a method on a database."""

    argv: tuple[str | bytes, ...]
    exit: int = 0
    stdin: bytes = b""
    cwd: str = "."
    db: str | None = None
    typed: bool = False
    before: Callable[[Path], object] | None = None

    def env(self, project: Path) -> dict[str, str]:
        chosen = {} if self.db is None else {"INTERCORE_DB": self.db.format(project=project)}
        return {**chosen, "INTERCORE_LEGACY_DIR": str(project / "legacy")}


def run(line: str, exit: int = 0, **options: object) -> Step:  # noqa: A002
    """A step from a line; `typed` unless it is meant to fail before anything is called."""
    options.setdefault("typed", exit != 3)
    return Step(tuple(line.split()), exit, **options)  # type: ignore[arg-type]


def other(line: str, exit: int = 0, **options: object) -> Step:  # noqa: A002
    """A step that is not a call of one method: help, usage errors, inputs that are refused."""
    return run(line, exit, typed=False, **options)


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda project: (project / name).write_bytes(content)


def _plant(project: Path) -> None:
    """Legacy files of several kinds, and some that are refused."""
    legacy = project / "legacy"
    legacy.mkdir()
    for name in ("stop-s1", "compound-last-s1", "autopub.lock", "stop-a\tb"):
        (legacy / f"clavain-{name}").touch()
    (legacy / "clavain-dispatch-7.json").write_bytes(b'{"name":"x"}')
    (legacy / "clavain-dispatch-8.json").write_bytes(SECRET)
    (legacy / "clavain-stop-link").symlink_to("/etc/passwd")
    band = project / ".interband" / "interphase" / "bead"
    band.mkdir(parents=True)
    (band / "s1.json").write_bytes(b'{"version":"1.0.0","payload":{"id":"B-1"}}')
    (band / "s2.json").write_bytes(b'{"version":"1.0.0","source":"intercore","payload":{}}')


def _spoil(project: Path) -> None:
    """Replace the database by a file that is none."""
    (project / ".clavain" / "intercore.db").unlink()
    _write(".clavain/intercore.db", b"no database" * 1000)(project)


def _link(project: Path) -> None:
    (project / "elsewhere").mkdir()
    (project / ".clavain").symlink_to(project / "elsewhere")


def _hook(project: Path) -> None:
    (project / ".clavain" / "hooks").mkdir(mode=0o755)
    hook = project / ".clavain" / "hooks" / "on-event"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)


def _change_hook(project: Path) -> None:
    (project / ".clavain" / "hooks" / "on-event").write_text("#!/bin/sh\nfalse\n")


INIT = run("init")

SCRIPTS: dict[str, list[Step]] = {
    "no arguments and unknown words": [
        Step(()),
        other("--help"),
        other("help"),
        other("help state"),
        other("state --help"),
        other("state set --help"),
        other("sentinel check -h"),
        other("version --help"),
        other("bogus", 3),
        other("bogus --help", 3),
        other("state", 3),
        other("state bogus", 3),
        other("sentinel", 3),
        other("sentinel bogus", 3),
        other("--timeout=x state list k", 3),
        other("--timeout", 3),
        other("--db", 3),
        Step(("state", "get", "k", b"\xff\xfe"), 3),
        Step(("state", "get", "k", "ünïcödé"), 2),
    ],
    "no database": [
        other("version"),
        other("version extra words"),
        run("health", 2),
        run("state get k s", 2),
        run("state list k", 2),
        run("state prune", 2),
        run("sentinel check n s --interval=1", 2),
        run("sentinel list", 2),
        run("state get k s --db=.clavain/other.db", 2),
        other("state get k s --if-database", 69),
        other("--if-database sentinel check n s --interval=0", 69),
        other("--if-database health --json", 69),
        other("state get Bad s --if-database", 2),
        other("compat import --if-database", 69, before=lambda p: (p / "legacy").mkdir()),
        other("state get k s --db=noext --if-database", 2),
        other("lib-path"),
        other("lib-path --json"),
        other("lib-path extra", 3),
        other("completion bash"),
        other("completion zsh"),
        other("completion fish --json"),
        other("completion", 3),
        other("completion tcsh", 3),
        other("state get k s --db=noext", 2),
        other("state get k s --db=../../escape.db", 2),
        other("state get k s --db=/etc/passwd.db", 2),
        run("init --db=/etc/passwd.db", 2),
        other("init --db=noext", 2),
    ],
    "init, version, health": [
        run("init"),
        run("init"),
        run("init --json"),
        run("version"),
        run("version --json"),
        run("health"),
        run("health --check"),
        run("--json health"),
        other("init --bogus", 3),
        other("init extra", 3),
        run("state list k", cwd="sub/deep"),
        run("init", cwd="sub/deep"),
        run("state list k", cwd="sub", db="{project}/.clavain/intercore.db"),
        run("state list k", cwd="sub", db=".clavain/intercore.db"),
        run("state list k --db .clavain/intercore.db", db="/nonexistent.db"),
    ],
    "backups": [
        run("backup", 2),
        other("restore missing.db", 2),
        INIT,
        run("state set k s --value=1"),
        run("backup"),
        run("backup --json"),
        other("backup mine.bak"),
        other("backup mine.bak", 2),
        other("backup gone/mine.bak", 2),
        other("backup --json ../more.bak", cwd="sub"),
        other("backup link", 2, before=lambda p: (p / "link").symlink_to("elsewhere")),
        Step(("backup", ""), 3),
        other("backup a b", 3),
        other("backup --help"),
        run("state set k s --value=2"),
        other("restore mine.bak"),
        run("state get k s"),
        other("restore ../mine.bak --json", cwd="sub"),
        other("restore", 3),
        other("restore link", 2),
        other("restore gone", 2),
        other("restore .clavain/intercore.db", 2),
        other("restore text", 2, before=_write("text", b"no database" * 1000)),
        other("restore mine.bak", before=lambda p: (p / ".clavain/intercore.db").unlink()),
        run("state get k s"),
    ],
    "exports": [
        other("export file", 2),
        other("import file", 2),
        INIT,
        run("state set k s --value=1"),
        run("sentinel check n s --interval=0"),
        other("export file"),
        other("export file", 2),
        other("export ../more --json", cwd="sub"),
        other("export", 3),
        Step(("export", ""), 3),
        run("state delete k s"),
        other("import file"),
        other("import ../file --json", cwd="sub"),
        run("state get k s"),
        other("import text", 2, before=_write("text", b"no export\n")),
        other("import gone", 2),
        other("import", 3),
        other("import --help"),
    ],
    "the database file": [
        other("db", 3),
        other("db bogus", 3),
        other("db --help"),
        other("db check", 2),
        other("db check --if-database", 69),
        run("db vacuum", 2),
        INIT,
        other("db check"),
        other("db check --json"),
        other("db check --timeout=5m --help"),
        run("db vacuum"),
        run("db vacuum --json"),
        other("db check extra", 3),
        other("db vacuum extra", 3),
    ],
    "a damaged database": [
        INIT,
        run("state set k s --value=1"),
        other("backup mine.bak"),
        run("state get k s", 2, before=_spoil),
        other("db check", 2),
        run("db vacuum", 2),
        run("backup", 2),
        other("backup more.bak", 2),
        other("restore mine.bak"),
        run("state get k s"),
        other("db check"),
    ],
    "a symlink instead of the directory": [
        run("init", 2, before=_link),
        run("state list k", 2),
    ],
    "state set and get": [
        INIT,
        run("state set dispatch s1", stdin=b' {"phase": "executing"}\n'),
        run("state get dispatch s1"),
        run("state get dispatch s1 --json"),
        run("--json state get dispatch s1"),
        run("state get dispatch s1 --meta"),
        run("state get dispatch other", 1),
        run("state get nothing s1", 1),
        run("state set dispatch s1", stdin=b"[1,\n 2]"),
        # A line of JSON-RPC has no line breaks: the value is the same, its white space is not.
        other("state get dispatch s1"),
        other("state get dispatch s1 --json"),
        run("state set scalar s1", stdin=b"42"),
        run("state set scalar s1", stdin=b"null"),
        run("state set scalar s1", stdin=b'"a<b>&c"'),
        run("state get scalar s1 --json"),
        run("state set k s --value={}"),
        run("state set k s --value []"),
        run("state get k s"),
        run("state set k s @file.json", before=_write("file.json", b'{"from":"file"}')),
        run("state get k s"),
        other("state set k s @missing.json", 2),
        other("state set k s word", 3),
        other("state set k s @file.json --value=1", 3),
        other("state set k", 3),
        other("state set", 3),
        other("state get k", 3),
        other("state get k s extra", 3),
        other("state get k s --bogus", 3),
        Step(("state", "set", "k", ""), stdin=b"1", typed=True),
        Step(("state", "get", "k", ""), typed=True),
        Step(("state", "set", "k", "with space"), stdin=b"1", typed=True),
        Step(("state", "list", "k"), typed=True),
        run("state set k..b s", stdin=b"1"),
        run("state set a.b:c-d_e s --json", stdin=b"1"),
        run("state get k s --verbose", typed=False),
        run("state set k s --verbose", stdin=b"2", typed=False),
    ],
    "state refuses": [
        INIT,
        other("state set Key s", 2, stdin=b"1"),
        other("state set k. s", 2, stdin=b"1"),
        other("state set 1k s", 2, stdin=b"1"),
        Step(("state", "set", "", "s"), 2, stdin=b"1"),
        Step(("state", "set", "k" * 201, "s"), 2, stdin=b"1"),
        Step(("state", "set", "k", "a\tb"), 2, stdin=b"1"),
        Step(("state", "set", "k", "a\nb"), 2, stdin=b"1"),
        other("state set k s", 2, stdin=b""),
        other("state set k s", 2, stdin=b"not json"),
        other("state set k s", 2, stdin=b'{"a":1,}'),
        other("state set k s", 2, stdin=b"NaN"),
        other("state set k s", 2, stdin=b'"\xff"'),
        other("state set k s", 2, stdin=b"1\0"),
        other("state set k s", 2, stdin=BIG),
        other("state set k s", 2, stdin=DEEP),
        other("state set k s", 2, stdin=LONG),
        other("state set k s", 2, stdin=SECRET),
        other("state set k s", 2, stdin=b'{"' + b"k" * 1001 + b'":1}'),
        other("state set k s", 2, stdin=b'"\\u0007"'),
        other("state set k s", 2, stdin=b'"' + b"x" * 1_200_000 + b'"'),
        run("state get k s", 1),
    ],
    "state with a TTL": [
        INIT,
        run("state set k s --ttl=1h", stdin=b"1"),
        run("state set k s --ttl 90m", stdin=b"1"),
        run("state get k s --json"),
        run("state set k s --ttl=1h30m10.5s --json", stdin=b"1"),
        run("state set k s --ttl=2d", stdin=b"1"),
        run("state set k s --ttl=0", stdin=b"1"),
        run("state get k s --meta"),
        other("state set k s --ttl=500ms", 2, stdin=b"1"),
        other("state set k s --ttl=-1s", 3, stdin=b"1"),
        other("state set k s --ttl=5", 3, stdin=b"1"),
        other("state set k s --ttl=x", 3, stdin=b"1"),
        other("state set k s --ttl=9999999999999h", 3, stdin=b"1"),
        run("state prune"),
    ],
    "state versions and counters": [
        INIT,
        run("state set k s --if-version 0 --json", stdin=b"1"),
        run("state set k s --if-version 0", 1, stdin=b"2"),
        run("state set k s --if-version 1 --json", stdin=b"3"),
        run("state set k s --if-version=1", 1, stdin=b"4"),
        run("state get k s"),
        other("state set k s --if-version=x", 3, stdin=b"4"),
        other("state set k s --if-version=-1", 3, stdin=b"4"),
        run("state incr n s"),
        run("state incr n s --by=41"),
        run("state incr n s --by -2 --json"),
        run("state incr t s --ttl=1h --json"),
        run("state get n s"),
        other("state incr n s --by=x", 3),
        other("state incr n s --by=9223372036854775808", 3),
        run("state incr n s --by=9223372036854775807", 2),
        run("state set n s", stdin=b'"text"'),
        run("state incr n s", 2),
        run("state set k s --debounce=250ms", stdin=b"5"),
        run("state get k s"),
        other("state set k s --debounce=250ms --ttl=1s", 3, stdin=b"5"),
        other("state set k s --debounce=250ms --if-version=1", 3, stdin=b"5"),
    ],
    "state list and delete": [
        INIT,
        run("state list k"),
        run("state list k --json"),
        run("state set k b", stdin=b"1"),
        run("state set k a", stdin=b"1"),
        run("state set k.x a", stdin=b"1"),
        run("state set other a", stdin=b"1"),
        run("state list k"),
        run("state list k --json"),
        run("state list --prefix=k"),
        run("state list --prefix k. --json"),
        run("state list --prefix="),
        other("state list", 3),
        other("state list k --prefix=k", 3),
        other("state list K", 2),
        run("state delete k a"),
        run("state delete k a"),
        run("state delete k b --json"),
        run("state delete k b --json"),
        run("state delete --all k.x"),
        run("state delete --all k.x"),
        run("state delete other --all --json"),
        other("state delete k", 3),
        other("state delete k s --all", 3),
        run("state list --prefix="),
        run("state prune --json"),
        other("state prune extra", 3),
    ],
    "statusline": [
        other("statusline"),
        other("statusline --session=s1 --format=sh"),
        other("statusline --session=s1 --format=tsv"),
        other("statusline --session=s1 --json"),
        INIT,
        run("statusline"),
        run("statusline --session s1 --format=text"),
        run("state set dispatch s1", stdin=b'{"name":"fix","activity":"x","pid":4000000}'),
        run("state set dispatch 1", stdin=b'{"name":"other"}'),
        run("state set bead s1", stdin=b'{"id":"it\'s $(x)","phase":"a\\nb"}'),
        run("state set lane s1", stdin=b'"core"'),
        run("state set pressure s1", stdin=b'{"level":"red","pressure":0.5}'),
        run("state set budget s1", stdin=b"[1]"),
        run("state set coordination p-a", stdin=b'{"text":"t","priority":1}'),
        run("statusline --session=s1 --format=sh"),
        run("statusline --session=s1 --format=json"),
        run("--json statusline --session s1 --agent=a"),
        run("statusline --session=s1 --agent=b --format=json"),
        run("statusline --session=of-the-caller --json"),
        run("statusline --json"),
        other("statusline --session=s1 --json --project=..", cwd="sub/deep"),
        other("statusline --session=s1 --json --project=/"),
        other("statusline --session=s1 --project=/ --db=.clavain/intercore.db", 0),
        other("statusline --session=s1 --db=noext", 2),
        Step(("statusline", "--session", "a\tb"), 2),
        other("statusline --format=bogus", 3),
        other("statusline --format=sh --json", 3),
        other("statusline s1", 3),
        other("statusline --help"),
    ],
    "sentinels": [
        INIT,
        run("sentinel check stop s1 --interval=0"),
        run("sentinel check stop s1 --interval=0", 1),
        run("sentinel check stop s1 --interval=1", 1),
        run("sentinel check rate s1 --interval 3600"),
        run("sentinel check rate s1 --interval 3600", 1),
        run("sentinel check rate s2 --interval=3600 --json"),
        run("sentinel check rate s2 --interval=3600 --json", 1),
        run("sentinel check once s2 --interval=0 --json"),
        run("sentinel check once s2 --interval=0 --json", 1),
        run("--db .clavain/intercore.db sentinel check rate s3 --interval=5"),
        other("sentinel check rate s1", 3),
        other("sentinel check rate", 3),
        other("sentinel check rate s1 --interval=-1", 3),
        other("sentinel check rate s1 --interval=1.5", 3),
        other("sentinel check rate s1 --interval=x", 3),
        other("sentinel check rate s1 --interval=99999999999999", 3),
        Step(("sentinel", "check", "n", "", "--interval=5"), typed=True),
        run("sentinel check n unknown --interval=5"),
        Step(("sentinel", "check", "", "s", "--interval=5"), 2),
        Step(("sentinel", "check", "a\tb", "s", "--interval=5"), 2),
        run("sentinel check n s --interval=5 --verbose", typed=False),
        run("sentinel list"),
        run("sentinel list --json"),
        run("sentinel reset stop s1"),
        run("sentinel reset stop s1"),
        run("sentinel check stop s1 --interval=0 --json"),
        run("sentinel reset --all rate"),
        run("sentinel reset rate --all --json"),
        other("sentinel reset rate", 3),
        other("sentinel reset rate s --all", 3),
        run("sentinel prune --older-than=1h"),
        run("sentinel prune --older-than 0s --keep-live"),
        run("sentinel prune --older-than 0s --keep-once"),
        run("sentinel list"),
        run("sentinel prune --older-than=0s --json"),
        run("sentinel list"),
        other("sentinel prune", 3),
        other("sentinel prune --older-than=x", 3),
        other("sentinel prune --older-than=-1s", 3),
    ],
    "compat without files or database": [
        other("compat status"),
        other("compat check stop", 1),
        other("compat import", 2),
        other("compat cleanup", 2),
        other("compat", 3),
        other("compat bogus", 3),
        other("compat --help"),
        other("compat import --help"),
        other("compat import bogus", 3),
        other("compat cleanup --bogus", 3),
        other("compat check", 3),
        other("compat status", before=_plant),
        other("compat import", 2),
    ],
    "compat": [
        INIT,
        other("compat status", before=_plant),
        other("compat import --dry-run"),
        other("compat import stop"),
        other("compat import --json"),
        other("compat import"),
        other("compat import --verbose --dry-run dispatch"),
        run("compat check stop"),
        run("compat check stop --json"),
        run("compat check lane", 1),
        Step(("compat", "check", "a\tb"), 1, typed=True),
        other("compat status"),
        other("--json compat status"),
        run("state get dispatch 7"),
        run("sentinel check stop s1 --interval=0", 1),
        run("sentinel check compound_throttle s1 --interval=300", 1),
        run("sentinel check autopub global --interval=60", 1),
        other("compat cleanup"),
        other("compat cleanup --json"),
        other("compat cleanup stop --apply"),
        other("compat cleanup --apply --superseded"),
        other("compat cleanup"),
        other("compat status"),
    ],
    "hooks": [
        other("hooks", 3),
        other("hooks bogus", 3),
        other("hooks list", 2),
        other("hooks trust", 2),
        other("hooks untrust --if-database", 69),
        INIT,
        other("hooks list"),
        other("hooks trust", 1),
        other("hooks trust on-event", 1),
        other("hooks trust on-nothing", 3),
        other("hooks trust --help"),
        other("hooks list extra", 3),
        other("hooks list", before=_hook),
        other("hooks list --json", cwd="sub"),
        other("hooks trust"),
        other("hooks trust --json on-event"),
        other("hooks list"),
        other("hooks list", before=_change_hook),
        other("hooks untrust"),
        other("hooks untrust on-event", 1),
        other("hooks trust", 2, before=lambda p: (p / ".clavain/hooks/on-event").chmod(0o777)),
    ],
    "config": [
        other("config", 3),
        other("config bogus", 3),
        other("config show extra", 3),
        other("config show"),
        other("config show --origin --json"),
        other("config check"),
        other("config check --json --if-database"),
        INIT,
        other("config show --origin", cwd="sub", before=_write(".clavain/intercore.toml", b"idle_seconds = 5\n")),
        other("config show --json --db=noext", 2),
        other("config check", 2, before=_write(".clavain/intercore.toml", b"a = 1\nmirror = 5\n")),
        other("config check --json", 2),
        other("config show", 2),
    ],
    "the daemon": [
        other("status --help"),
        other("status extra", 3),
        other("metrics --help"),
        other("metrics extra", 3),
        other("metrics --bogus", 3),
    ],
    "many sentinels": [
        INIT,
        run("sentinel check-many a:s:0 b:s:60 c:with:colons:0"),
        run("sentinel check-many a:s:0 b:s:60 d:s:60", 1),
        run("sentinel check-many e:s:60 e:s:60 --json", 1),
        run("sentinel check-many x::5"),
        run("sentinel list"),
        other("sentinel check-many", 3),
        other("sentinel check-many a:b", 3),
        other("sentinel check-many a:b:x", 3),
        other("sentinel check-many a:b:-1", 3),
        other("sentinel check-many f:s:60 broken", 3),
        run("sentinel check-many f:s:60"),
    ],
}  # fmt: skip
