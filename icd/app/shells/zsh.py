"""Completion for zsh: a file for the fpath, or something to source after compinit."""

from shlex import quote

from icd.app.shells import cases
from icd.app.shells.cases import Offer

# `place` becomes the command as far as it is written, `option` the one whose value is written.
_SCRIPT = """\
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


def script() -> str:
    return cases.fill(_SCRIPT, opening="(", assign=_assign, add=_add)


def _assign(offer: Offer) -> str:
    return f"offers=({_words(offer)})" if offer.kind == "word" else f"kind={offer.kind}"


def _add(offer: Offer) -> str:
    return f"offers+=({_words(offer)})"


def _words(offer: Offer) -> str:
    """`_describe` wants `word:what it is about`."""
    return " ".join(quote(f"{word}:{about}" if about else word) for word, about in offer.words)
