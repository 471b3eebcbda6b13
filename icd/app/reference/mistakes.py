"""What is wrong with a command line, and what was meant; loaded on a mistake only.

An error is one line: what was not understood, then the nearest two names, or the shape of the line.
What other tools call a thing (`rm`, `ls`, `runs list`) is suggested, never understood: each thing
keeps one name, which scripts can rely on.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import click

from icd.app import registry
from icd.app.parser import Field, Leaf
from icd.app.reference import help as texts
from icd.app.types import Choice
from icd.app.verb import Argument, Option
from icd.errors import IcError, Usage
from icd.values.validation import shown

# More names than these are no help.
NAMES = 2
# What is longer is no misspelled name, and comparing takes its time.
WORD = 32
# Of a shorter word, two letters that differ are too many; so are more that are missing at its end.
SHORT = 5

_SEE = "see 'icctl --help'"

GLOBALS = tuple(words.split()[0] for words, _ in texts.GLOBALS)
# What other tools call it, and what it may be here: the first two that a noun has are suggested.
SYNONYMS = {
    "rm remove del delete unset erase drop clear purge clean unlock free reset": (
        "delete release reset cancel kill prune dismiss"
    ),
    "ls dir all": "list tail status",
    "show info describe inspect view status display details": "status get show list tail",
    "get fetch": "get status show list",
    "read cat print peek": "get tail status list",
    "list query": "tail query status rules show",
    "add new make create insert append push emit submit": (
        "create record submit reserve start set acquire"
    ),
    "set edit change modify put write save store": "set update create",
    "stop end abort kill cancel terminate finish close": "cancel kill release stop end",
    "take lock claim hold acquire try": "acquire reserve check spawn",
    "start run launch begin spawn exec": "spawn create start advance acquire",
    "next step forward continue proceed promote": "advance",
    "back undo revert rewind": "rollback",
    "inc increment bump increase count add": "incr",
    "log logs history follow stream watch": "tail events logs status",
    "find grep filter query search": "search query list",
    "test verify validate try": "check",
    "help usage man -help": "--help",
}
# The same for commands.
COMMANDS = {
    "ps": ("dispatch list", "run list"),
    "log": ("events tail", "service logs"),
    "logs": ("events tail", "service logs"),
    "tail": ("events tail",),
    "watch": ("events tail -f", "state watch"),
    "info": ("status", "doctor"),
    "diagnose": ("doctor", "health"),
    "create": ("run create", "init"),
    "new": ("run create", "init"),
    "start": ("service start", "run create"),
    "stop": ("service stop",),
    "restart": ("service reload",),
    "reload": ("service reload",),
    "install": ("setup", "service install"),
    "uninstall": ("setup", "service uninstall"),
    "kv": ("state",),
    "store": ("state",),
    "throttle": ("sentinel",),
    "ratelimit": ("sentinel",),
    "once": ("sentinel check",),
    "mutex": ("lock", "lease"),
    "unlock": ("lock release", "lease release"),
    "job": ("dispatch", "run"),
    "task": ("run", "dispatch"),
    "agent": ("run agent", "dispatch"),
    "artifact": ("run artifact",),
    "cursor": ("events cursor",),
    "phase": ("run phase", "gate"),
    "spawn": ("dispatch spawn",),
    "dump": ("export", "backup"),
    "load": ("import", "restore"),
    "save": ("backup", "export"),
    "vacuum": ("db vacuum",),
    "migrate": ("init", "compat import"),
    "upgrade": ("init", "service reload"),
    "prompt": ("statusline",),
    "daemon": ("service", "status"),
    "server": ("service", "status"),
    "settings": ("config",),
    "path": ("lib-path",),
    "man": ("help",),
}
_UNITS = {"s": "s", "m": "m", "h": "h", "d": "d", "ms": "ms"}
_UNITS |= dict.fromkeys(("sec", "secs", "second", "seconds"), "s")
_UNITS |= dict.fromkeys(("min", "mins", "minute", "minutes"), "m")
_UNITS |= dict.fromkeys(("hr", "hrs", "hour", "hours"), "h")
_UNITS |= dict.fromkeys(("day", "days"), "d")
_UNITS |= dict.fromkeys(("msec", "millis", "milliseconds"), "ms")
_WEEKS = ("w", "week", "weeks")


# --- names that are near --------------------------------------------------------------------------


def distance(one: str, other: str) -> int:
    """Damerau and Levenshtein: how many letters to add, drop, replace or swap with the next."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one):
        last, before, row = before, row, [i + 1]
        for j, b in enumerate(other):
            best = min(before[j + 1] + 1, row[j] + 1, before[j] + (a != b))
            if i and j and a == other[j - 1] and one[i - 1] == b:
                best = min(best, last[j - 1] + 1)
            row.append(best)
    return row[-1]


def nearest(word: str, names: Iterable[str]) -> list[str]:
    """Those that may have been meant, the likeliest first; of two as near, the one named first."""
    typed = word.lower()
    if not typed or len(typed) > WORD:
        return []
    found = {name: _score(typed, name) for name in names}
    if typed in found:
        return [typed]
    most = 1 if len(typed) < SHORT else 2
    near = [name for name in found if found[name] <= most]
    return sorted(near, key=found.__getitem__)[:NAMES]


def _score(typed: str, name: str) -> int:
    """A word that was not typed to its end is near, too."""
    if len(typed) > 1 and name.startswith(typed):
        return 0 if len(name) < len(typed) + SHORT else 1
    return distance(typed, name)


def meant(names: Sequence[str]) -> str:
    """`did you mean 'status' or 'state'?`"""
    return f"did you mean {' or '.join(repr(name) for name in names[:NAMES])}?"


# --- commands -------------------------------------------------------------------------------------


def unknown_command(words: list[str]) -> IcError:
    word = words[0]
    if word[:1] == "-" and word.strip("-"):
        return _unknown_global(word)
    found = _commands_meant(words)
    hint = meant(found) if found else _SEE
    return Usage(f"unknown command {shown(word)}", hint=hint)


def _unknown_global(word: str) -> IcError:
    name = word.partition("=")[0]
    if name in GLOBALS:
        return Usage(f"{name} takes no value", hint=f"write {name}")
    found = nearest("--" + name.lstrip("-"), (*GLOBALS, "--version"))
    return Usage(f"unknown option {shown(name)}", hint=meant(found) if found else _SEE)


def _commands_meant(words: list[str]) -> list[str]:
    """The first rule that finds something decides."""
    word, rest = words[0].lower(), [w for w in words[1:2] if w[:1] != "-"]
    for rule in (_shouted, _joined, _plural, _swapped, _other_name, _without_noun, _misspelled):
        found = rule(word, rest)
        if found:
            return found
    return []


def _shouted(word: str, _rest: list[str]) -> list[str]:
    """`Status`."""
    return [word] if word in registry.SINGLES else []


def _joined(word: str, _rest: list[str]) -> list[str]:
    """`run-list`, `state.get`."""
    noun, _, verb = re.sub(r"[-.:_/=]+", " ", word).partition(" ")
    return [f"{noun} {found}" for found in _verbs_meant(noun, verb)] if verb else []


def _plural(word: str, rest: list[str]) -> list[str]:
    """`runs list`, `event`."""
    noun = _noun(word)
    if noun is None:
        return []
    verbs = _verbs_meant(noun, rest[0]) if rest else []
    return [f"{noun} {verb}" for verb in verbs] or [noun]


def _swapped(word: str, rest: list[str]) -> list[str]:
    """`list runs`."""
    noun = _noun(rest[0]) if rest else None
    return [f"{noun} {verb}" for verb in _verbs_meant(noun, word)] if noun else []


def _other_name(word: str, _rest: list[str]) -> list[str]:
    return list(COMMANDS.get(word, ()))


def _without_noun(word: str, _rest: list[str]) -> list[str]:
    """`acquire build main`."""
    return [f"{noun} {word}" for noun in registry.GROUPS if word in registry.verbs(noun)]


def _misspelled(word: str, rest: list[str]) -> list[str]:
    """A word alone is likelier to stand for a command, one with words behind it for a noun."""
    nouns = [name for name in registry.GROUPS if " " not in name]
    singles = [*registry.SINGLES, "help"]
    return nearest(word, [*nouns, *singles] if rest else [*singles, *nouns])


def _noun(word: str) -> str | None:
    """The noun that a word is a singular or a plural of."""
    word = word.lower()
    forms = [word, word + "s", word.removesuffix("s"), word.removesuffix("es")]
    forms.append(word.removesuffix("ies") + "y")
    return next((form for form in forms if form in registry.GROUPS), None)


# --- verbs ----------------------------------------------------------------------------------------


def unknown_verb(noun: str, word: str) -> IcError:
    known = [*registry.verbs(noun), *registry.below(noun)]
    found = _verbs_meant(noun, word)
    hint = meant(found) if found else f"use one of {', '.join(known)}"
    if word[:1] == "-":
        return Usage(f"{shown(word)} stands where a subcommand belongs", hint=hint)
    return Usage(f"unknown subcommand {shown(word)}", hint=hint)


def _verbs_meant(noun: str, word: str) -> list[str]:
    if noun not in registry.GROUPS:
        return []
    word = word.lower()
    known = [*registry.verbs(noun), *registry.below(noun)]
    if word in known:
        return [word]
    plural = [form for form in (word + "s", word.removesuffix("s")) if form in known]
    same = _same(word, known)
    # A word that other tools know is none of ours misspelled: `print` is not `prune`, nor is `list`
    # cut off from `list-review`.
    begun = [n for n in known if n.startswith(word) and not n.startswith(f"{word}-")]
    near = [n for n in nearest(word, known) if not same or n in same or n in begun]
    if plural or (near and len(word) > 2):  # two letters are near to anything
        return plural or near
    below = _below(noun, word)
    return [*same[: 1 if below else NAMES], *below] or near


def _same(word: str, known: Sequence[str]) -> list[str]:
    """What other tools call it."""
    names = [n for typed, meant in SYNONYMS.items() if word in typed.split() for n in meant.split()]
    found = [name for name in dict.fromkeys(names) if name in known or name[:1] == "-"]
    return found[:NAMES]


def _below(noun: str, word: str) -> list[str]:
    """`run add` for `run agent add`."""
    return [f"{name} {word}" for name in registry.below(noun) if word in _known(noun, name)]


def _known(noun: str, below: str) -> list[str]:
    return list(registry.verbs(f"{noun} {below}"))


# --- options and arguments ------------------------------------------------------------------------


def told(exc: click.UsageError, context: str, leaf: Leaf, words: list[str]) -> IcError:
    """What click found, in our words."""
    if isinstance(exc, click.NoSuchOption):
        return _unknown_option(_as_typed(exc.option_name, words), context, leaf)
    if isinstance(exc, click.BadOptionUsage):
        return _bad_usage(exc, context, leaf)
    if isinstance(exc, click.MissingParameter):
        return _missing(exc, context, leaf, words)
    if isinstance(exc, click.BadParameter):
        return _bad_value(exc, context, leaf)
    extra = re.match(r"Got unexpected extra arguments? \((.*)\)", exc.format_message(), re.DOTALL)
    if extra is None:
        return Usage(exc.format_message().rstrip("."), hint=f"see 'icctl {context} --help'")
    return _extra(_first(extra[1], words), context, leaf)


def _as_typed(option: str, words: list[str]) -> str:
    """Of -json, click names the first letter."""
    is_letter = option[:2] != "--"
    return next((w for w in words if is_letter and w[:2] == option), option).partition("=")[0]


def _unknown_option(name: str, context: str, leaf: Leaf) -> IcError:
    if name in GLOBALS:  # with a value: without one, it would have been understood
        return Usage(f"{name} takes no value", hint=f"write {name}")
    near = nearest("--" + name.lstrip("-"), _options(leaf))
    others = [] if near else list(_with_option(name, context))
    if near:
        hint = meant(near)
    elif others:
        hint = f"it belongs to {' and '.join(repr(other) for other in others[:NAMES])}"
    else:
        hint = f"see 'icctl {context} --help'"
    return Usage(f"unknown option {shown(name)}", hint=hint)


def _options(leaf: Leaf) -> list[str]:
    named = [f.typed for f in leaf.fields if isinstance(f.typed, Option)]
    own = [name for option in named for name in (option.name, *option.aliases)]
    return [name for name in (*own, *GLOBALS) if name.startswith("--")]


def _with_option(name: str, context: str) -> Iterator[str]:
    """The other verbs of the noun that know an option."""
    noun = context.rpartition(" ")[0]
    if noun in registry.GROUPS:
        for verb, leaf in registry.verbs(noun).items():
            if name.replace("_", "-") in _options(leaf):
                yield f"{noun} {verb}"


def _bad_usage(exc: click.BadOptionUsage, context: str, leaf: Leaf) -> IcError:
    field = _field(leaf, exc.option_name)
    if field is not None and not field.is_switch:
        return Usage(f"{exc.option_name} needs a value", hint=f"write {_spelled(field)}")
    if field is not None:
        return Usage(f"{exc.option_name} takes no value", hint=f"write {exc.option_name}")
    return Usage(exc.format_message().rstrip("."), hint=f"see 'icctl {context} --help'")


def _field(leaf: Leaf, option: str) -> Field | None:
    return next((f for f in leaf.fields if option in _names(f)), None)


def _names(field: Field) -> tuple[str, ...]:
    typed = field.typed
    return (typed.name, *typed.aliases) if isinstance(typed, Option) else ()


def _missing(exc: click.MissingParameter, context: str, leaf: Leaf, words: list[str]) -> IcError:
    assert exc.param is not None
    name = exc.param.name
    (field,) = (f for f in leaf.fields if f.name == name)
    if isinstance(field.typed, Argument):
        return Usage(f"missing argument {field.typed.metavar}", hint=_shape(context, leaf))
    option = field.typed.name
    bare = [f"--{word}" for word in words if f"--{word}".startswith(f"{option}=")]
    return Usage(f"missing {option}", hint=meant(bare[:1]) if bare else _shape(context, leaf))


def _first(extra: str, words: list[str]) -> str:
    """The first of the words that click has put together, which may have spaces."""
    begun = [word for word in words if word and f"{extra} ".startswith(f"{word} ")]
    return max(begun, key=len, default=extra.partition(" ")[0])


def _extra(first: str, context: str, leaf: Leaf) -> IcError:
    """An option without its dashes is likely to be meant."""
    is_option = f"--{first.partition('=')[0]}" in _options(leaf)
    hint = meant([f"--{first}"]) if is_option else _shape(context, leaf)
    return Usage(f"unexpected argument {shown(first)}", hint=hint)


def _bad_value(exc: click.BadParameter, context: str, leaf: Leaf) -> IcError:
    """`--ttl: invalid duration '5min': did you mean '5m'?`"""
    name = exc.param and exc.param.name
    field = next(f for f in leaf.fields if f.name == name)
    message = exc.message.rstrip(".")
    if isinstance(field.typed, Option):
        message = f"{field.typed.name}: {message}"
    elif not isinstance(field.kind, Choice):  # whose name is its choices
        message = f"{field.typed.metavar}: {message}"
    return Usage(message, hint="" if "did you mean" in message else f"see 'icctl {context} --help'")


def _shape(context: str, leaf: Leaf) -> str:
    """`write 'icctl state get KEY SCOPE'`: what the line needs, in its order."""
    arguments = [_argument(f) for f in leaf.fields if isinstance(f.typed, Argument)]
    options = [_spelled(f) for f in leaf.fields if isinstance(f.typed, Option) and _is_needed(f)]
    return f"write '{' '.join(['icctl', context, *filter(None, arguments), *options])}'"


def _argument(field: Field) -> str:
    assert isinstance(field.typed, Argument)
    if field.typed.usage is not None:
        return field.typed.usage
    return field.typed.metavar if field.required else f"[{field.typed.metavar}]"


def _is_needed(field: Field) -> bool:
    return field.required and not field.is_switch and getattr(field.typed, "resolve", None) is None


def _spelled(field: Field) -> str:
    typed = field.typed
    if isinstance(typed, Argument):
        return typed.metavar
    kind = "VALUE" if field.kind is None else field.kind.name.upper()
    if isinstance(field.kind, Choice):
        kind = "|".join(field.kind.choices)
    return f"{typed.name}={typed.metavar or kind}"


# --- values ---------------------------------------------------------------------------------------


def duration(word: str) -> str:
    """What may be meant by a word that is no duration, such as 5min; nothing if that is unclear."""
    bare = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", word.strip().lower())
    if bare is None or len(word) > WORD:
        return ""
    number, unit = bare.groups()
    if not unit:
        return meant([f"{number}s", f"{number}d"])  # where seconds are fine, so is a number
    if unit in _WEEKS and number.isdigit():
        return meant([f"{int(number) * 7}d"])
    return meant([number + _UNITS[unit]]) if unit in _UNITS else ""


def choice(word: str, choices: Sequence[str]) -> str:
    found = nearest(word, choices)
    return f"; {meant(found)}" if found else ""
