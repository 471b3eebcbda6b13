"""Documentation that fails the build when it is wrong.

What the code offers must be described; what the documents show must happen.
"""

import functools
import os
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import click
import msgspec
import pytest

from icd import errors
from icd.__main__ import commands
from icd.app import flags, registry
from icd.app.call import Params
from icd.app.invocation import SESSION_VARIABLES
from icd.config import CHANNELS, RETENTION_SECONDS, VARIABLES, Channel, Mirror, Settings
from icd.db import migrate
from icd.features.compat import files
from icd.features.gates import store as gates
from icd.features.gates.store import CHECKS
from icd.features.statusline.store import Statusline
from icd.features.statusline.verbs import PREFIX, SHOW
from icd.server import limits
from tests.support import house, markdown, pages, reference, reference_commands, rows, secrets_page
from tests.support.processes import until

ROOT = Path(__file__).parent.parent
ICD = commands()
DOCS = ROOT / "docs"
EXAMPLE = DOCS / "examples" / "started-done.sh"
STATUSLINE = DOCS / "examples" / "statusline.sh"
MARKDOWN = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


@functools.cache
def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(document: str, title: str) -> str:
    """What stands below a heading, up to the next heading of its level or above."""
    lines = document.splitlines()
    starts = [
        i for i, line in enumerate(lines) if re.fullmatch(rf"#+ `?{re.escape(title)}`?", line)
    ]
    assert len(starts) == 1, f"{len(starts)} headings {title!r}"
    level = len(lines[starts[0]]) - len(lines[starts[0]].lstrip("#"))
    body = lines[starts[0] + 1 :]
    ends = [i for i, line in enumerate(body) if re.match(rf"#{{1,{level}}} ", line)]
    return "\n".join(body[: ends[0]] if ends else body)


def row(document: str, name: str) -> list[str]:
    """The cells of the one table row that is about `name`."""
    rows = [line for line in document.splitlines() if line.startswith("|") and f"`{name}`" in line]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    found = [line for line in cells if f"`{name}`" in line[:2]]
    assert len(found) == 1, f"{len(found)} rows about {name}"
    return found[0]


def structs(kind: object) -> list[type[msgspec.Struct]]:
    """The structs that a result type is made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        inner = [s for hint in kind.__annotations__.values() for s in structs(hint)]
        return [kind, *inner]
    return [s for part in getattr(kind, "__args__", ()) for s in structs(part)]


# --- the command line -----------------------------------------------------------------------


def test_every_command_is_documented_with_its_options():
    for name in registry.commands():
        described = section(text("cli.md"), name)

        assert f"icctl {name}" in described, name
        for param in registry.commands()[name].click.params:
            for option in param.opts if isinstance(param, click.Option) else []:
                assert f"`{option}" in described, (name, option)


def test_the_reference_is_what_the_program_makes_of_it():
    made = reference.pages()

    old = [page.name for page in made if page.read_text(encoding="utf-8") != made[page]]
    assert not old, f"{' and '.join(old)} in docs differ from the program: run make docs"


def test_little_of_the_reference_is_written_by_hand():
    templates = [*reference.TEMPLATES.iterdir()]

    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in templates) < 500


def test_every_command_has_a_topic_page():
    for name in registry.commands():
        described = section(text("cli.md"), name)

        assert name == "completion" or re.search(
            r"^More: \[[\w-]+\.md\]", described, re.MULTILINE
        ), name


@pytest.mark.parametrize("page", sorted(set(reference_commands.TOPICS.values())))
def test_the_commands_that_a_topic_page_tells_about_exist(page):
    known = {*registry.commands(), *registry.GROUPS, *(f"icd {name}" for name in ICD.commands)}
    named = [title for title in markdown.titles(DOCS / page) if title.split()[0] in known | {"icd"}]

    assert set(named) <= known


@pytest.mark.parametrize("flag", sorted(flags._SWITCHES | flags._VALUED))
def test_every_global_flag_is_documented(flag):
    described = section(text("cli.md"), "Global flags")

    assert re.search(rf"`{flag}[` ]", described)


def test_every_environment_variable_is_documented_and_used():
    files = [*(ROOT / "icd").rglob("*.py"), *(ROOT / "icctl").rglob("*.py")]
    sources = [file.read_text(encoding="utf-8") for file in files]

    for variable in [
        "INTERCORE_DB",
        "INTERCORE_MODE",
        "INTERCORE_SOCKET",
        "INTERCORE_LEGACY_DIR",
        "INTERBAND_ROOT",
        "INTERCORE_LOCK_DIR",
        "INTERCORE_SESSION",
        "CLAUDE_SESSION_ID",
        "COLUMNS",
        "NO_COLOR",
        "IC_LOG_LEVEL",
        *VARIABLES.values(),
    ]:
        assert row(section(text("cli.md"), "Environment variables"), variable), variable
        assert any(variable in source for source in sources), variable


def test_every_variable_of_a_session_is_documented_in_its_turn_and_sent_by_both_clients():
    rule = section(text("cli.md"), "Which session")
    native, python, library = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("icctl/client.c", "icctl/client.py", "lib-intercore.sh")
    )

    places = [rule.index(f"`{name}`") for name in SESSION_VARIABLES]
    assert places == sorted(places)
    for name in SESSION_VARIABLES:
        assert f'"{name}"' in native
        assert f'b"{name}"' in python
        assert f"{name}" in section_of_bash(library, "_intercore_whose")


def section_of_bash(library: str, function: str) -> str:
    return library.partition(f"\n{function}() {{\n")[2].partition("\n}\n")[0]


def test_the_variables_of_the_statusline_are_documented_in_their_order():
    described = text("statusline.md")
    assigned = SHOW["sh"](Statusline(session="")).stdout.decode()

    names = re.findall(r"(\w+)=''", assigned)
    assert re.findall(rf"^\| `({PREFIX}\w+)` ", described, re.MULTILINE) == names


def test_the_danger_of_a_crash_after_a_claim_is_documented():
    described = text("sentinels.md")

    assert "A crash after `allowed` blocks the retry" in described
    assert "(examples/started-done.sh)" in described


def test_every_legacy_file_is_documented_with_its_key_and_what_becomes_of_it():
    for pattern in files.FILES:
        name = f"/tmp/{pattern.prefix.decode()}*{pattern.suffix.decode()}"

        _file, key, becomes, question = row(section(text("migration.md"), "Per pattern"), name)

        assert key == f"`{pattern.key}`", pattern
        if pattern.interval_s is None:
            assert becomes.startswith("state"), pattern
            assert question.startswith(f"`state get {pattern.key} "), pattern
        else:
            interval = f"{pattern.interval_s} s" if pattern.interval_s else "once"
            assert becomes.startswith(f"sentinel, {interval}"), pattern
            assert question.startswith(f"`sentinel check {pattern.key} "), pattern
            assert question.endswith(f" --interval={pattern.interval_s}`"), pattern


@pytest.mark.parametrize("key", files.CHANNELS)
def test_every_interband_channel_is_documented_with_its_key(key):
    name = "/".join(["~", files.INTERBAND, files.CHANNELS[key], "*.json"])

    assert row(section(text("migration.md"), "Per pattern"), name)[1] == f"`{key}`"


@pytest.mark.parametrize("key", files.KEYS)
def test_every_key_of_legacy_files_is_documented(key):
    assert f"`{key}`" in section(text("migration.md"), "compat")


# --- gates ----------------------------------------------------------------------------------


def test_the_default_rules_of_gates_are_documented_in_their_order():
    described = section(text("gates.md"), "The default rules")
    found = re.findall(r"^\| `([\w-]+)` \| `([\w-]+)` \| (.+) \|$", described, re.MULTILINE)

    assert found == [
        (
            rule.from_phase,
            rule.to_phase,
            ", ".join(
                f"`{c.check}`" + (f" of `{c.phase}`" if c.phase else "") for c in rule.checks
            ),
        )
        for rule in gates.DEFAULT
    ]


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_of_gates_is_documented(name):
    assert row(section(text("gates.md"), "Checks"), name)


def test_the_example_of_gate_rules_is_valid():
    described = section(text("gates.md"), "Rules of a run's own")
    examples = re.findall(r"^```json\n(.*?)^```$", described, re.MULTILINE | re.DOTALL)

    assert len(examples) == 2
    for example in examples:
        gates.check_against(gates.parse(example), ["plan", "work", "done"])


def test_the_limits_of_gate_rules_are_documented():
    described = section(text("gates.md"), "Rules of a run's own")
    limits = gates.RULES, gates.CHECKS_OF_A_RULE, gates.RULES_BYTES // 1024

    assert "At most {} rules with {} checks each, in {} KiB.".format(*limits) in described


# --- the protocol ---------------------------------------------------------------------------


def test_every_method_is_documented_with_its_parameters_and_results():
    for method in registry.every():
        described = section(text("protocol.md"), method.name)
        own = [
            name for name in method.params.__struct_fields__ if name not in Params.__struct_fields__
        ]
        results = [
            name for struct in structs(method.result) for name in struct.__struct_encode_fields__
        ]

        for name in own:
            assert f"`{name}`" in described, (method.name, name)
        results_are_with = re.findall(r"object(?:s)? of \[`([\w.]+)`\]", described)
        for other in results_are_with:
            described += section(text("protocol.md"), other)
        for name in results:
            assert f"`{name}`" in described, (method.name, name)


@pytest.mark.parametrize("name", Params.__struct_fields__)
def test_every_common_parameter_is_documented(name):
    assert row(section(text("protocol.md"), "Common parameters"), name)


def test_every_error_is_documented_with_its_code_exit_and_meaning():
    for kind in errors.TABLE:
        code, _name, exit_status, retryable, meaning, _hint = row(
            section(text("protocol.md"), "Errors"), kind.name
        )

        assert code == str(kind.code), kind
        assert exit_status == str(kind.exit), kind
        assert retryable == ("yes" if kind.retryable else "no"), kind
        assert meaning, kind


def test_every_limit_is_documented_with_its_value():
    for name in [name for name in vars(limits) if name.isupper()]:
        _name, value, _meaning = row(section(text("protocol.md"), "Limits"), name)

        assert float(value) == getattr(limits, name), name


def test_the_table_of_secrets_is_the_one_that_is_used():
    page = text("secrets.md")

    assert secrets_page.page(page) == page, "run `make docs`"


# --- settings and schema --------------------------------------------------------------------


def test_every_setting_is_documented_with_its_default():
    for field in msgspec.structs.fields(Settings):
        described = section(text("configuration.md"), "Settings")
        _name, default, variable, flag, _meaning = row(described, field.name)
        given = field.name in VARIABLES

        assert default == f"`{msgspec.json.encode(field.default).decode()}`", field
        assert variable == (f"`{VARIABLES[field.name]}`" if given else ""), field
        assert flag == (f"`--{field.name.replace('_', '-')}`" if given else ""), field


@pytest.mark.parametrize("name", ICD.commands)
def test_every_command_of_the_daemon_is_documented_with_its_options(name):
    described = section(text("cli.md"), f"icd {name}")

    assert f"    icd {name}" in described
    for param in ICD.commands[name].params:
        assert f"`{param.opts[0]}" in described or isinstance(param, click.Argument)


def test_the_daemon_has_a_flag_for_every_setting_that_has_a_variable():
    assert VARIABLES.keys() <= {param.name for param in ICD.commands["serve"].params}


@pytest.mark.parametrize("name", [*Mirror.__struct_fields__, *Channel.__struct_fields__])
def test_every_setting_of_the_mirror_is_documented(name):
    assert f"\n| `{name}` |" in section(text("configuration.md"), "mirror")


@pytest.mark.parametrize("key", CHANNELS)
def test_every_channel_is_documented_with_what_it_is_by_default(key):
    cells = row(section(text("configuration.md"), "mirror"), key)
    channel = CHANNELS[key]

    assert cells == [
        f"`{key}`",
        f"`{channel.path}`",
        f"`{channel.type}`",
        f"`{channel.session or 'scope'}`",
        str(channel.retention_seconds or RETENTION_SECONDS),
    ]


def schema() -> dict[str, list[str]]:
    """The tables of the newest schema with their columns, made by the migrations themselves."""
    conn = sqlite3.connect(":memory:")
    for _number, file in migrate.pending(0):
        for statement in migrate.statements(file):
            conn.execute(statement)
    tables = [name for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type='table'")]
    tables.remove("sqlite_sequence")
    columns = "SELECT name FROM pragma_table_info(?)"
    found = {table: [name for (name,) in conn.execute(columns, (table,))] for table in tables}
    conn.close()
    return found


def test_every_table_is_documented_with_its_columns():
    for table, columns in schema().items():
        described = section(text("schema.md"), table)

        for column in columns:
            assert f"`{column}`" in described, (table, column)


def test_every_index_is_documented():
    for index in [
        name
        for _number, file in migrate.pending(0)
        for name in re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+)", Path(file).read_text("utf-8"))
    ]:
        assert row(section(text("schema.md"), "Tables"), index), index


def test_the_current_schema_version_is_documented():
    assert f"**{migrate.LATEST}**" in section(text("schema.md"), "Versions")


# --- the library for bash ---------------------------------------------------------------------


def library_names(kind: str) -> list[str]:
    listed = subprocess.run(
        ["bash", "-c", f"source {ROOT / 'lib-intercore.sh'}; compgen {kind}"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    return [name for name in listed.stdout.split() if re.match("intercore_|INTERCORE_", name)]


def test_every_function_of_the_library_is_documented():
    for name in library_names("-A function"):
        assert re.search(rf"`{name}[` ]", section(text("library.md"), "Functions")), name


def test_every_variable_of_the_library_is_documented():
    for name in library_names("-v"):
        assert f"`{name}`" in section(text("library.md"), "Settings"), name


# --- links ----------------------------------------------------------------------------------


def test_no_text_of_an_installation_names_a_page_that_is_not_installed():
    """The wheel has no docs/: hints, help and comments name commands, or an ADR by its number."""
    pages_here = "|".join(re.escape(path.name) for path in DOCS.rglob("*.md"))
    named = re.compile(rf"\bdocs/(?!plan\.md)[\w.]|(?<![\w.-])({pages_here})\b")
    shipped = house.tracked("icd", "icctl", "lib-intercore.sh", "systemd")

    assert [name for name in shipped if named.search(house.source(name))] == []


def anchors(document: Path) -> set[str]:
    return {markdown.anchor(title) for title in markdown.titles(document)}


def test_relative_links_resolve():
    for document in MARKDOWN:
        links = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))

        for link in links:
            if re.match(r"[a-z]+:", link):
                continue
            path, _, fragment = link.partition("#")
            target = document.parent / path if path else document
            assert target.exists(), (document, link)
            if fragment:
                assert fragment in anchors(target), (document, link)


# --- what the documents show, happens -------------------------------------------------------


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has intercore installed, and neither daemon nor settings."""
    home = tmp_path / "home"
    home.mkdir()
    programs = Path(sys.executable).parent
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "INTERCORE_MODE": "direct",
    }


def test_the_tour_of_the_readme_happens_as_shown(project, env):
    tour = pages.steps((ROOT / "README.md").read_text(encoding="utf-8"))

    assert len(tour) >= 10
    pages.play(tour, project, env)


# --- the example ----------------------------------------------------------------------------


@pytest.fixture
def log(project: Path, env: dict[str, str]) -> Path:
    """A project with a database, and the file in which commands note that they ran."""
    subprocess.run(["icctl", "init"], cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)
    return project / "log"


def example(project: Path, env: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(EXAMPLE), "session", *command],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


NOTE = ("sh", "-c", "echo ran >>log")
CRASH = ("sh", "-c", "echo crashed >>log; kill -9 $PPID")


def test_the_example_runs_the_command_once(project, env, log):
    first = example(project, env, *NOTE)
    second = example(project, env, *NOTE)

    assert (first.returncode, first.stdout) == (0, "running: first run\ndone\n")
    assert (second.returncode, second.stdout) == (0, "skipped: done already\n")
    assert log.read_text() == "ran\n"


def test_the_example_recovers_from_a_crash_once(project, env, log):
    crashed = example(project, env, *CRASH)
    second = example(project, env, *NOTE)
    third = example(project, env, *NOTE)

    assert crashed.returncode == -9
    assert re.fullmatch(r"running: process \d+ did not finish\ndone\n", second.stdout)
    assert third.stdout == "skipped: done already\n"
    assert log.read_text() == "crashed\nran\n"


def test_the_example_tries_a_failed_command_again(project, env, log):
    failed = example(project, env, "sh", "-c", "echo failed >>log; exit 7")
    second = example(project, env, *NOTE)

    assert failed.returncode == 7
    assert second.returncode == 0
    assert log.read_text() == "failed\nran\n"


def test_the_example_recovers_when_the_first_run_crashed_before_it_started(project, env, log):
    claim = ["icctl", "sentinel", "check", "started-done", "session", "--interval=0"]
    subprocess.run(claim, cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)

    ran = example(project, env, *NOTE)

    assert ran.stdout == "running: claimed, but never started\ndone\n"
    assert log.read_text() == "ran\n"


def test_of_two_retries_of_the_example_exactly_one_runs(project, env, log):
    example(project, env, *CRASH)
    gate = project / "gate"
    os.mkfifo(gate)
    # Whoever runs stays at it until the other has decided, so they cannot miss each other.
    held = ("sh", "-c", "echo ran >>log; read -r _ <gate")

    with ThreadPoolExecutor() as pool:
        retries = {pool.submit(example, project, env, *held) for _ in range(2)}
        done, running = wait(retries, timeout=30, return_when=FIRST_COMPLETED)
        release = os.open(gate, os.O_RDWR)
        os.write(release, b"go\n" * (1 + len(running)))
        finished = [retry.result(timeout=30) for retry in retries]
        os.close(release)

    assert len(done) == 1
    assert done.pop().result().stdout.startswith("skipped: ")
    assert [retry.returncode for retry in finished] == [0, 0]
    assert log.read_text() == "crashed\nran\n"


def test_the_example_does_not_run_where_icctl_cannot_tell(project, env):
    ran = example(project, env, *NOTE)

    assert ran.returncode == 2
    assert "icctl init" in ran.stderr
    assert not (project / "log").exists()


def test_the_example_explains_its_usage(project, env):
    ran = example(project, env)

    assert ran.returncode == 3
    assert ran.stderr == "usage: started-done.sh SESSION COMMAND [ARGUMENT]...\n"


# --- the statusline -------------------------------------------------------------------------


def statusline(project: Path, env: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    ran = subprocess.run(
        [str(STATUSLINE), *arguments],
        cwd=project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def put(project: Path, env: dict[str, str], key: str, scope: str, value: object) -> None:
    command = ["icctl", "state", "set", key, scope, "--value", msgspec.json.encode(value).decode()]
    subprocess.run(command, cwd=project, env=env, check=True)


def test_the_statusline_shows_what_is_known(project, env, log):
    put(project, env, "dispatch", "s1", {"name": "fix", "activity": "testing", "pid": os.getpid()})
    put(project, env, "bead", "s1", {"id": "ic-1", "phase": "executing"})
    put(project, env, "coordination", "p-a", {"text": "$(touch pwned)"})
    put(project, env, "budget", "s1", {"pct_consumed": 37})

    shown = statusline(project, env, "s1")

    line = "fix (testing) | 1 agents: $(touch pwned) | ic-1 [executing] | 37% of the budget\n"
    assert shown == (0, line, "")
    assert not (project / "pwned").exists()


def test_the_statusline_shows_the_run(project, env, log):
    with sqlite3.connect(project / ".clavain" / "intercore.db") as conn:
        rows.run(conn, project_dir=os.path.realpath(project), phase="planned")
    conn.close()

    assert statusline(project, env, "s1") == (0, "run run00001 [planned]\n", "")


def test_the_statusline_is_empty_where_nothing_is_known(project, env):
    assert statusline(project, env, "s1") == (0, "\n", "")
    assert statusline(project, env, "s1", str(project)) == (0, "\n", "")


def test_the_statusline_goes_on_when_it_is_told_to(project, env, log):
    watching = subprocess.Popen(
        [str(STATUSLINE), "--watch", "s1", str(project)],
        cwd="/",
        env=env,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == b"\n"

    put(project, env, "lane", "s1", {"lane": "core"})

    assert watching.stdout.readline() == b"lane core\n"
    watching.terminate()
    watching.wait(30)
    watching.stdout.close()
    until(lambda: not _group_lives(watching.pid))  # nothing is left behind


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_statusline_explains_its_usage(project, env):
    usage = "usage: statusline.sh [[--watch] SESSION [DIRECTORY]]\n"

    assert statusline(project, env, "--watch") == (3, "", usage)
    assert statusline(project, env, "a", "b", "c") == (3, "", usage)
