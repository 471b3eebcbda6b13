"""Completion for fish: one declaration a word."""

from icd.app.command_tree import Option, Slot, beginnings, everywhere, leaves, verbs
from icd.app.registry import GROUPS

_SCRIPT = """\
# Completion of icctl for fish, made by: icctl completion fish

# The words of the command line that are neither global flags nor their values.
function __icctl_words
    set -l found
    set -l skip no
    for word in (commandline -opc)[2..-1]
        if test $skip = yes
            set skip no
            continue
        end
        switch $word
            case --
                echo -- nowhere
                return
            case {valued}
                set skip yes
            case '-*' help
            case '*'
                set -a found $word
        end
    end
    echo "$found"
end

# Nothing but these words so far.
function __icctl_is
    test (__icctl_words) = "$argv"
end

# These words, and perhaps more.
function __icctl_in
    string match -q -- "$argv *" (__icctl_words)" "
end

complete -c icctl -f
complete -c ic -w icctl
{declarations}
"""


def script() -> str:
    found, shared = leaves(), everywhere()
    lines = [_word("", *word) for word in beginnings()]
    lines += [_word(noun, *word) for noun in GROUPS for word in verbs(noun)]
    lines += [_option("", option) for option in shared]
    for leaf in found:
        condition = f" -n {_quoted(f'__icctl_in {leaf.name}')}"
        lines += [_option(condition, option) for option in leaf.options]
        lines += [
            f"complete -c icctl{condition}{_values(slot)}"
            for slot in leaf.slots
            if slot.words or slot.kind != "word"
        ]
    valued = " ".join(option.name for option in shared if option.slot)
    return _SCRIPT.format(valued=valued, declarations="\n".join(lines))


def _word(after: str, word: str, about: str) -> str:
    condition = _quoted(f"__icctl_is {after}".rstrip())
    return f"complete -c icctl -n {condition} -a {word} -d {_quoted(about)}"


def _option(condition: str, option: Option) -> str:
    name, about = option.name.removeprefix("--"), _quoted(option.about)
    values = "" if option.slot is None else " -r" + _values(option.slot)
    return f"complete -c icctl{condition} -l {name}{values} -d {about}"


def _values(slot: Slot) -> str:
    if slot.kind == "directory":
        return " -f -a '(__fish_complete_directories)'"
    return " -F" if slot.kind == "file" else f" -f -a {_quoted(' '.join(slot.words))}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
