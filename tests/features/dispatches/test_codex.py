"""An agent without a script is codex: found where the user has it, and its failures are told."""

from pathlib import Path

import pytest

from tests.features.dispatches.conftest import Agents

# As the real one: the prompt is an argument, or standard input for `-`; progress goes to stderr,
# the last message to stdout; unknown flags are refused by its parser.
CODEX = """#!/bin/sh
[ "$1" = exec ] || { echo "error: unrecognized subcommand '$1'" >&2; exit 2; }
shift
while [ $# -gt 0 ]; do
    case $1 in
        -m) model=$2; shift ;;
        --sandbox)
            case $2 in read-only|workspace-write|danger-full-access) sandbox=$2; shift ;;
            *) echo "error: invalid value '$2' for '--sandbox <SANDBOX_MODE>'" >&2; exit 2 ;; esac ;;
        -) prompt=$(cat) ;;
        -*) echo "error: unexpected argument '$1' found" >&2
            echo >&2; echo "Usage: codex exec [OPTIONS] [PROMPT]" >&2; exit 2 ;;
        *) prompt=$1 ;;
    esac
    shift
done
echo "OpenAI Codex, workdir: $(pwd)" >&2
if [ ! -e .git ]; then
    echo "Not inside a trusted directory and --skip-git-repo-check was not specified." >&2; exit 1
fi
echo "did '$prompt' with ${model:-the usual model} in ${sandbox:-read-only}"
"""


@pytest.fixture
def codex(agents: Agents, tmp_path: Path) -> Path:
    """A codex on the PATH, and a prompt."""
    found = tmp_path / "bin" / "codex"
    found.parent.mkdir()
    program(found, CODEX)
    agents.env["PATH"] = f"{found.parent}:/usr/bin:/bin"
    (agents.project / "fix.md").write_text("fix it\n")
    return found


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def shown(agents: Agents, dispatch_id: str) -> dict[str, str]:
    """What `dispatch status` prints, by label."""
    text = agents.run("status", dispatch_id).stdout.decode()
    return {line.partition(":")[0]: line.partition(":")[2].strip() for line in text.splitlines()}


def test_codex_reads_the_prompt_with_the_model_and_the_sandbox_that_were_asked_for(agents, codex):
    dispatch_id = agents.spawn("--prompt-file=fix.md", "--output=o.md", "--model=m")

    found = agents.ended(dispatch_id)
    assert (found["status"], found.get("error_message")) == ("completed", None)
    told = (agents.project / "o.md").read_text().splitlines()
    assert told[-1] == "did 'fix it' with m in workspace-write"


def test_why_codex_failed_is_in_the_status_in_text_and_in_json(agents, codex):
    (agents.project / ".git").rmdir()

    dispatch_id = agents.spawn("--prompt-file=fix.md", "--output=o.md")

    why = "Not inside a trusted directory and --skip-git-repo-check was not specified."
    found = agents.ended(dispatch_id)
    told = f"exit status 1: OpenAI Codex, workdir: {agents.project} / {why}"
    assert (found["status"], found["exit_code"], found["error_message"]) == ("failed", 1, told)
    assert shown(agents, dispatch_id)["Error"] == told


def test_what_codex_does_not_understand_is_told_as_it_says_it(agents, codex):
    dispatch_id = agents.spawn("--prompt-file=fix.md", "--sandbox=none")

    told = agents.ended(dispatch_id)["error_message"]
    assert told == "exit status 2: error: invalid value 'none' for '--sandbox <SANDBOX_MODE>'"


def test_a_codex_that_is_killed_is_told(agents, codex):
    program(codex, "#!/bin/sh\nkill -9 $$\n")

    found = agents.ended(agents.spawn("--prompt-file=fix.md"))

    assert found["error_message"] == "was killed by signal 9 (Killed)"


def test_last_words_are_bounded_and_cannot_move_the_cursor(agents, codex):
    many = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done"
    odd = r"printf '%0900d \033[31mred\033[0m \033]0;title\007 \302\233 end\n' 7; exit 3"
    program(codex, f"#!/bin/sh\n{many}\n{odd}\n")

    told = agents.ended(agents.spawn("--prompt-file=fix.md"))["error_message"]

    assert told.startswith("exit status 3: 0000")
    assert told.endswith("7 red ]0;title end")
    assert len(told) <= 520
    assert told.isprintable()


def test_an_output_that_another_file_replaced_is_not_taken_for_last_words(agents, codex):
    (agents.project / "secret").write_text("private\n")
    program(codex, "#!/bin/sh\nrm o.md; ln secret o.md; exit 3\n")

    found = agents.ended(agents.spawn("--prompt-file=fix.md", "--output=o.md"))

    assert (found["exit_code"], found.get("error_message")) == (3, None)


@pytest.mark.parametrize("path", ["", ".", ":/usr/bin:/bin", "/usr/bin:/bin:", "/usr/bin:bin:/bin"])
def test_a_codex_in_the_project_is_not_found_through_a_relative_path(agents, codex, path):
    planted = f"#!/bin/sh\ntouch {agents.project}/harm\n"
    program(agents.project / "codex", planted)
    (agents.project / "bin").mkdir()
    program(agents.project / "bin" / "codex", planted)

    done = agents.run("spawn", "--prompt-file=fix.md", PATH=path)

    sentence = "cannot start codex: No such file or directory"
    assert (done.returncode, sentence in done.stderr.decode()) == (2, True)
    assert agents.every()[0]["error_message"] == sentence
    assert not (agents.project / "harm").exists()


def test_an_agent_has_the_path_of_its_caller_as_it_is(agents, codex):
    program(codex, '#!/bin/sh\necho "$PATH"\n')
    path = f":{codex.parent}:/usr/bin:/bin"

    agents.ended(agents.spawn("--prompt-file=fix.md", "--output=o.md", PATH=path))

    assert (agents.project / "o.md").read_text().strip() == path


def test_a_command_of_the_caller_is_found_as_a_shell_would(agents):
    (agents.project / "tools").mkdir()
    program(agents.project / "tools" / "mine", "#!/bin/sh\nexit 7\n")

    dispatch_id = agents.spawn("--", "mine", PATH="tools:/usr/bin:/bin")

    assert agents.ended(dispatch_id)["exit_code"] == 7
