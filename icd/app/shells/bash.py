"""Completion for bash, 4.2 or newer; it needs nothing of the package bash-completion.

Bash splits words at `=`, so `--format=sh` arrives as three.
"""

from shlex import quote

from icd.app.shells import cases
from icd.app.shells.cases import Offer

# `place` becomes the command as far as it is written, `option` the one whose value is written.
_SCRIPT = """\
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


def script() -> str:
    return cases.fill(_SCRIPT, opening="", assign=_assign, add=_add)


def _assign(offer: Offer) -> str:
    return f"words={_words(offer)}" if offer.kind == "word" else f"kind='{offer.kind}'"


def _add(offer: Offer) -> str:
    return f"words+=' '{_words(offer)}"


def _words(offer: Offer) -> str:
    return quote(" ".join(word for word, _ in offer.words))
