"""Completion scripts for bash, zsh and fish: texts made of tables, which call no program.

A script that asked the program would start Python at every TAB where no daemon runs, and would
know no more than these tables do: keys, scopes and names are the caller's own words.

A place is the command as far as it is written: nothing, a noun, or a whole command.
"""

from collections.abc import Callable
from shlex import quote
from typing import Any, Literal

import click
from msgspec import Struct

from icd.app import registry
from icd.app.reference import help as texts
from icd.app.registry import GROUPS

SHELLS = ("bash", "zsh", "fish")
# What stands for a file in the metavar of an option or argument.
_KINDS: dict[str, Literal["file", "directory"]] = {
    "FILE": "file",
    "PATH": "file",
    "DIR": "directory",
}
_NOWHERE = "nowhere"
Words = tuple[tuple[str, str], ...]  # each with what it is about


class Offer(Struct, frozen=True):
    """What may be written in a place: one of some words, a file, or anything."""

    words: Words = ()
    kind: Literal["word", "file", "directory"] = "word"


class Option(Struct, frozen=True):
    """`value` is None for a switch."""

    name: str
    about: str
    value: Offer | None = None


class Leaf(Struct, frozen=True):
    """A command, with what may be written behind it."""

    name: str  # all of it, as in `state set`
    about: str
    options: tuple[Option, ...]
    arguments: tuple[Offer, ...]


# --- the commands ---------------------------------------------------------------------------------


def leaves() -> list[Leaf]:
    """All commands, in the order of the usage text."""
    return [_leaf(name, leaf.click) for name, leaf in registry.commands().items()]


def everywhere() -> list[Option]:
    """The options that every command understands."""
    found = ((*form.partition(" "), about.rstrip(".")) for form, about in texts.GLOBALS)
    return [
        Option(n, about, _offer(metavar) if metavar else None) for n, _, metavar, about in found
    ]


def words(noun: str) -> Words:
    """What may follow a noun: verbs, and other nouns; after nothing, all beginnings."""
    groups = [(name, about) for name, (_, about) in GROUPS.items()]
    commands = [(leaf.name, leaf.about) for leaf in leaves()]
    found = commands + groups if noun else [*groups, *commands, ("help", "help for a command")]
    split = ((*name.rpartition(" "), about) for name, about in found)
    return tuple((word, about) for above, _, word, about in split if above == noun)


def _leaf(name: str, command: click.Command) -> Leaf:
    return Leaf(
        name,
        command.get_short_help_str(200).rstrip("."),
        tuple(
            Option(p.opts[0], (p.help or "").rstrip("."), None if p.is_flag else _value(p))
            for p in command.params
            if isinstance(p, click.Option)
        ),
        tuple(_value(p) for p in command.params if isinstance(p, click.Argument)),
    )


def _value(param: click.Parameter) -> Offer:
    choices = param.type.choices if isinstance(param.type, click.Choice) else ()
    # Click writes the name of an argument in capitals where it has no metavar.
    return _offer(param.metavar or (param.name or "").upper(), tuple((c, "") for c in choices))


def _offer(metavar: str, words: Words = ()) -> Offer:
    return Offer(words, _KINDS.get(metavar.strip("[]"), "word"))


# --- bash and zsh ---------------------------------------------------------------------------------

# `place` becomes the command as far as it is written, `option` the one whose value is written.
# For bash 4.2 or newer, without the package bash-completion.  It splits words at `=`, so
# `--format=sh` arrives as three.
_BASH = """\
# Completion of icctl for bash, made by: icctl completion bash

_icctl() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} option='' place='' word i
    local IFS=$' \\t\\n' words='' kind=word
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        case $word in
            --) return ;;
            {valued})
                [[ ${{COMP_WORDS[i + 1]}} == = ]] && ((i++))
                ((i++)) ;;
            -*) ;;
            *)
                case $place:$word in
                    :help) ;;
{places}
                esac ;;
        esac
    done
    option=${{COMP_WORDS[COMP_CWORD - 1]}}
    if [[ $current == = ]]; then
        current=
    elif [[ $option == = ]]; then
        option=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    case $place:$option in
{values}
        *)
            if [[ $current == -* ]]; then
                {everywhere}
                case $place in
{options}
                esac
            else
                case $place in
{arguments}
                esac
            fi ;;
    esac
    case $kind in
        file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        directory) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current") ;;
    esac
    [[ $kind == word ]] || compopt -o filenames 2>/dev/null
}}

complete -F _icctl icctl ic
"""
# A file for the fpath, or something to source after compinit.
_ZSH = """\
#compdef icctl ic
# Completion of icctl for zsh, made by: icctl completion zsh

_icctl() {{
    local option='' place='' word kind=word
    local -a offers
    integer i
    for ((i = 2; i < CURRENT; i++)); do
        word=$words[i]
        case $word in
            (--) return 1 ;;
            ({valued}) ((i++)) ;;
            (-*) ;;
            (*)
                case $place:$word in
                    (:help) ;;
{places}
                esac ;;
        esac
    done
    option=$words[CURRENT-1]
    if [[ $PREFIX == --*=* ]]; then
        option=${{PREFIX%%=*}}
        compset -P 1 '*='
    fi
    case $place:$option in
{values}
        (*)
            if [[ $PREFIX == -* ]]; then
                kind=option
                {everywhere}
                case $place in
{options}
                esac
            else
                case $place in
{arguments}
                esac
            fi ;;
    esac
    case $kind in
        (file) _files ;;
        (directory) _files -/ ;;
        (option) _describe -o option offers ;;
        (*) _describe word offers ;;
    esac
}}

if [[ $funcstack[1] == _icctl ]]; then
    _icctl "$@"
else
    compdef _icctl icctl ic
fi
"""


def script(shell: str) -> str:
    if shell == "fish":
        return _fish()
    if shell == "bash":
        return _cases(_BASH, "", ("words={}", "words+=' '{}", "kind='{}'"), _bash_words)
    return _cases(_ZSH, "(", ("offers=({})", "offers+=({})", "kind={}"), _zsh_words)


def _bash_words(words: Words) -> str:
    return quote(" ".join(word for word, _ in words))


def _zsh_words(words: Words) -> str:
    """`_describe` wants `word:what it is about`."""
    return " ".join(quote(f"{word}:{about}" if about else word) for word, about in words)


def _cases(
    script: str, opening: str, forms: tuple[str, str, str], join: Callable[[Words], str]
) -> str:
    """Fill in the `case` statements; `opening` is what a shell writes before a pattern.

    `forms` are those in which it is told words, more words, and that files are to be offered.
    """
    found, shared = leaves(), everywhere()
    assign, add, kind = forms

    def say(offer: Offer) -> str:
        return assign.format(join(offer.words)) if offer.kind == "word" else kind.format(offer.kind)

    def cases(indent: int, pairs: list[tuple[str, Any]], say: Callable[[Any], str]) -> str:
        return "\n".join(f"{' ' * indent}{opening}{at}) {say(to)} ;;" for at, to in pairs)

    return script.format(
        valued="|".join(option.name for option in shared if option.value),
        places=cases(20, _places(found), "place='{}'".format),
        values=cases(8, _values(found, shared), say),
        everywhere=say(Offer(_named(shared))),
        options=cases(
            20,
            [(quote(leaf.name), _named(leaf.options)) for leaf in found if leaf.options],
            lambda words: add.format(join(words)),
        ),
        arguments=cases(20, _arguments(found), say),
    )


def _places(found: list[Leaf]) -> list[tuple[str, str]]:
    """What the next word makes of a place, by `place:word`; an unknown one leads nowhere."""
    ways = []
    for name in [*GROUPS, *(leaf.name for leaf in found)]:
        above, _, word = name.rpartition(" ")
        ways.append((f"{above and quote(above)}:{word}", name))
    return [*ways, *((f"{noun and quote(noun)}:*", _NOWHERE) for noun in ["", *GROUPS])]


def _values(found: list[Leaf], shared: list[Option]) -> list[tuple[str, Offer]]:
    """What is offered as the value of an option, by `place:option`."""
    options = [("*", option) for option in shared]
    options += [(quote(leaf.name), option) for leaf in found for option in leaf.options]
    return [(f"{at}:{option.name}", option.value) for at, option in options if option.value]


def _arguments(found: list[Leaf]) -> list[tuple[str, Offer]]:
    """Nouns, verbs, and the arguments of a command that are no words of the caller's own."""
    offers = [(quote(noun), Offer(words(noun))) for noun in ["", *GROUPS]]
    offers += [(quote(leaf.name), offer) for leaf in found for offer in leaf.arguments]
    return [(place, offer) for place, offer in offers if offer != Offer()]


def _named(options: Any) -> Words:
    return tuple((option.name, option.about) for option in options)


# --- fish -----------------------------------------------------------------------------------------

_FISH = """\
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


def _fish() -> str:
    """One declaration a word."""
    shared = everywhere()
    lines = [_fish_word(noun, *word) for noun in ["", *GROUPS] for word in words(noun)]
    lines += [_fish_option("", option) for option in shared]
    for leaf in leaves():
        condition = f" -n {_fish_quoted(f'__icctl_in {leaf.name}')}"
        lines += [_fish_option(condition, option) for option in leaf.options]
        lines += [
            f"complete -c icctl{condition}{_fish_values(offer)}"
            for offer in leaf.arguments
            if offer != Offer()
        ]
    valued = " ".join(option.name for option in shared if option.value)
    return _FISH.format(valued=valued, declarations="\n".join(lines))


def _fish_word(after: str, word: str, about: str) -> str:
    condition = _fish_quoted(f"__icctl_is {after}".rstrip())
    return f"complete -c icctl -n {condition} -a {word} -d {_fish_quoted(about)}"


def _fish_option(condition: str, option: Option) -> str:
    name, about = option.name.removeprefix("--"), _fish_quoted(option.about)
    values = "" if option.value is None else " -r" + _fish_values(option.value)
    return f"complete -c icctl{condition} -l {name}{values} -d {about}"


def _fish_values(offer: Offer) -> str:
    if offer.kind == "directory":
        return " -f -a '(__fish_complete_directories)'"
    joined = " ".join(word for word, _ in offer.words)
    return " -F" if offer.kind == "file" else f" -f -a {_fish_quoted(joined)}"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
