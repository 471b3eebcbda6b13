"""`icctl completion`: what each shell offers where, asked in the shell itself."""

import re
import shlex
import shutil
import subprocess

import pytest

from icd.app.reference import completion as outline
from icd.app.reference.completion import SHELLS
from tests.support.processes import BIN

# Each driver defines `offered WORD...`, which prints what is offered for the last word.
DRIVERS = {
    "bash": """
        source "$1"
        [[ $(complete -p icctl ic) == *"-F _icctl icctl"*"-F _icctl ic" ]] || exit 9
        offered() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _icctl
            ((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
        }
    """,
    # The completion system itself needs a terminal; its four functions that are used do not.
    "zsh": """
        compdef() { [[ $* == '_icctl icctl ic' ]] || exit 9 }
        compset() { PREFIX=${PREFIX#*=} }
        _files() { if [[ $1 == -/ ]]; then print -rl -- *(/N); else print -rl -- *(N); fi }
        _describe() { local name=$@[-1]; print -rl -- ${${(P)name}%%:*} }
        source "$1"
        offered() {
            words=("$@") CURRENT=$# PREFIX=$@[-1]
            _icctl
        }
    """,
    "fish": """
        source $argv[1]
        function offered
            complete -C (string join ' ' -- $argv) | string replace -r '\\t.*' ''
        end
    """,
}
START = {
    "bash": ["--norc", "--noprofile", "-c"],
    "zsh": ["-f", "-c"],
    "fish": ["--no-config", "-c"],
}
MARK = "--- end of an answer ---"
GLOBALS = [option.name for option in outline.everywhere()]
LEAVES = outline.leaves()


@pytest.fixture(params=SHELLS)
def shell(request, stdout, tmp_path):
    """Asks a shell about many command lines at once: what is offered for the last word of each."""
    name = request.param
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed; it is Debian's package {name}")
    script = tmp_path / f"icctl.{name}"
    script.write_text(stdout("completion", name))
    (tmp_path / "here" / "folder").mkdir(parents=True)
    (tmp_path / "here" / "file.db").touch()

    def ask(*command_lines):
        asked = [_call(name, words) + f"\necho '{MARK}'\n" for words in command_lines]
        code = "\n".join([DRIVERS[name], *asked])
        ran = subprocess.run(
            [program, *START[name], code, *([name] if name != "fish" else []), script],
            capture_output=True, text=True, check=True, cwd=tmp_path / "here", timeout=60,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert ran.stderr == ""
        answers = ran.stdout.split(f"{MARK}\n")[:-1]
        return [_tidy(answer, words[-1]) for answer, words in zip(answers, command_lines, strict=True)]  # fmt: skip

    return ask


def _call(name, words):
    """Bash breaks words at `=`; the others do not."""
    if name == "bash":
        words = [part for word in words for part in re.split("(=)", word) if part or not word]
    quoted = ["''" if not word else shlex.quote(word) for word in words]
    return " ".join(["offered", *quoted])


def _tidy(answer, current):
    """Fish repeats what is before `=`, and shells mark directories."""
    begun = current.rpartition("=")[2]
    words = [word.rpartition("=")[2].rstrip("/") for word in answer.splitlines() if word]
    return sorted({word for word in words if word.startswith(begun)})


def test_the_first_word_is_a_noun_or_a_command(shell):
    first, begun, after_flags = shell(["icctl", ""], ["ic", "st"], ["icctl", "--json", "--db", "x", "help", "st"])  # fmt: skip

    assert first == sorted(word for word, _about in outline.words(""))
    assert begun == after_flags == ["state", "status", "statusline"]


def test_every_noun_is_followed_by_its_verbs(shell):
    nouns = [word for word, _ in outline.words("") if outline.words(word)]

    answers = shell(*(["icctl", noun, ""] for noun in nouns))

    assert answers == [sorted(verb for verb, _ in outline.words(noun)) for noun in nouns]


def test_every_command_has_its_options_and_those_of_all(shell):
    answers = shell(*(["icctl", *leaf.name.split(), "--"] for leaf in LEAVES))

    for leaf, answer in zip(LEAVES, answers, strict=True):
        assert answer == sorted([*GLOBALS, *(option.name for option in leaf.options)]), leaf.name


def test_every_choice_is_offered_either_way_of_writing_it(shell):
    choices = [(leaf, o) for leaf in LEAVES for o in leaf.options if o.value and o.value.words]
    begun = [["icctl", *leaf.name.split()] for leaf, _ in choices]

    spaced = shell(*([*words, o.name, ""] for words, (_, o) in zip(begun, choices, strict=True)))
    joined = shell(*([*words, f"{o.name}="] for words, (_, o) in zip(begun, choices, strict=True)))

    assert choices
    assert spaced == joined == [sorted(dict(option.value.words)) for _, option in choices]


def test_a_choice_that_is_begun_is_completed(shell):
    answers = shell(
        ["icctl", "statusline", "--format=t"],
        ["icctl", "statusline", "--watch", "--format", "js"],
        ["icctl", "completion", "z"],
    )

    assert answers == [["text", "tsv"], ["json"], ["zsh"]]


def test_files_and_directories_are_offered_where_they_belong(shell):
    database, project = shell(["icctl", "--db", ""], ["icctl", "statusline", "--project", ""])

    assert database == ["file.db", "folder"]
    assert project == ["folder"]


def test_every_argument_that_is_a_file_is_completed_as_one(shell):
    verbs = ["backup", "restore", "export", "import"]

    answers = shell(*(["icctl", verb, "f"] for verb in verbs))

    assert answers == [["file.db", "folder"]] * len(verbs)


@pytest.mark.parametrize(
    "words",
    [
        ["icctl", "state", "get", "--", "-"],
        ["icctl", "state", "set", "k", "s", "--ttl", ""],
        ["icctl", "--timeout", ""],
        ["icctl", "state", "get", ""],
        ["icctl", "nonsense", ""],
        ["icctl", "state", "nonsense", ""],
        ["icctl", "ping", "state", ""],
    ],
)
def test_nothing_is_offered_where_the_callers_own_words_stand(shell, words):
    assert shell(words) == [[]]


@pytest.mark.parametrize("name", SHELLS)
def test_a_script_names_every_command_option_and_choice(name, stdout):
    script = stdout("completion", name)
    words = set(re.findall(r"[\w-]+", script))

    for leaf in LEAVES:
        assert words.issuperset(leaf.name.split())
        for option in [*leaf.options, *outline.everywhere()]:
            assert option.name.removeprefix("--" if name == "fish" else "") in words
            assert option.value is None or words.issuperset(dict(option.value.words))


@pytest.mark.parametrize("name", SHELLS)
def test_a_script_does_not_call_the_program(name, stdout):
    code = [line.strip() for line in stdout("completion", name).splitlines()]

    assert not [
        line for line in code if re.match(r"(command )?icctl\b|.*\$\((icctl|command)", line)
    ]


def test_the_script_for_bash_is_clean(stdout, tmp_path):
    script = tmp_path / "icctl.bash"
    script.write_text(stdout("completion", "bash"))

    checked = subprocess.run(
        [BIN / "shellcheck", "-s", "bash", script], capture_output=True, check=False
    )

    assert checked.stdout == b""


def test_another_shell_is_a_mistake(ic):
    output = ic("completion", "tcsh")

    assert (output.exit, output.stdout) == (3, b"")
    assert b"bash" in output.stderr
