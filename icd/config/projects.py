"""What a project's file of settings may say: a project may come from anywhere.

It says what holds for its own database.  It names no place, starts nothing, and decides nothing for
the daemon of all projects.  About the mirror, whose files lie outside the project, it may only say
less: that nothing, or not this key, is mirrored, and for how long its own files stay.

What another version of intercore honoured is ignored and told; what never held is a mistake.
"""

from collections.abc import Iterator

from msgspec import structs

from icd.config import files
from icd.config.files import Complaint, File, Problem, dotted
from icd.config.settings import CHANNELS, Settings
from icd.config.shape import Path
from icd.config.sources import OF_THE_DAEMON, USER_FILE

# A database that is open keeps descriptors and the daemon, and one that is never idle is not looked
# after: so long, and no longer, a stranger's project may ask for that.
MOST_SECONDS = {"idle_seconds": 3600.0, "close_idle_seconds": 86_400.0}

OTHER_KEYS = f"because the keys that are mirrored are set in ~/{USER_FILE}"
ONLY_OFF = f"because a project can only switch it off; it is switched on in ~/{USER_FILE}"
OF_THE_USER = {
    "path": f"because where files are written is set in ~/{USER_FILE}",
    "type": f"because what is written to files is set in ~/{USER_FILE}",
    "session": f"because what is written to files is set in ~/{USER_FILE}",
}


def read(user: str | None, project: str | None) -> Iterator[File]:
    """Both files, if there are such paths; of the project's, what may hold."""
    keys = {*CHANNELS}
    if user is not None:
        found = files.read(user, Settings, _rules)
        keys |= _channels(found.values).keys()
        yield found
    if project is not None:
        found = files.read(project, Settings, _rules_of_a_project, may_be_link=False)
        yield found if found.problems else _restricted(found, keys)


def _rules(values: dict[str, object]) -> Iterator[Complaint]:
    """What the types of single settings cannot say."""
    for key, channel in _channels(values).items():
        if key not in CHANNELS and isinstance(channel, dict) and "path" not in channel:
            yield ("mirror", "channels", key), f"the channel `{key}` needs a path"


def _rules_of_a_project(values: dict[str, object]) -> Iterator[Complaint]:
    """What no project has ever been allowed to set."""
    for name in OF_THE_DAEMON & values.keys():
        yield (name,), f"{name} can be set for all projects only, in ~/{USER_FILE}"
    if "root" in _table(values, "mirror"):
        sentence = f"mirror.root can be set for all projects only, in ~/{USER_FILE}"
        yield ("mirror", "root"), sentence
    yield from _rules(values)


def _restricted(file: File, keys: set[str]) -> File:
    """What of a valid file holds; `keys` can be mirrored."""
    kept, ignored = dict(file.values), list[Complaint]()
    for name, most in MOST_SECONDS.items():
        given = kept.get(name)
        if isinstance(given, int | float) and given > most:
            kept[name] = most
            why = f"because a project may say {most:g} at most; so {most:g} holds"
            ignored.append(((name,), why))
    if "mirror" in kept:
        kept["mirror"] = _mirror(_table(kept, "mirror"), keys, ignored)
    told = [
        Problem(file.path, files.line(file.lines, at), f"ignored: {dotted(at)}, {why}")
        for at, why in ignored
    ]
    return structs.replace(file, values=kept, ignored=told)


def _mirror(
    given: dict[str, object], keys: set[str], ignored: list[Complaint]
) -> dict[str, object]:
    kept = _only_less(given, ("mirror",), ignored)
    channels: dict[str, object] = {}
    for key, channel in _table(given, "channels").items():
        at = ("mirror", "channels", key)
        if key not in keys:
            ignored.append((at, OTHER_KEYS))
        elif isinstance(channel, dict):
            channels[key] = _only_less(channel, at, ignored)
    return {**kept, "channels": channels}


def _only_less(given: dict[str, object], at: Path, ignored: list[Complaint]) -> dict[str, object]:
    kept: dict[str, object] = {}
    for name, value in given.items():
        if name in OF_THE_USER:
            ignored.append(((*at, name), OF_THE_USER[name]))
        elif name == "enabled" and value is not False:
            ignored.append(((*at, name), ONLY_OFF))
        elif name != "channels":
            kept[name] = value
    return kept


def _channels(values: dict[str, object]) -> dict[str, object]:
    return _table(_table(values, "mirror"), "channels")


def _table(values: dict[str, object], name: str) -> dict[str, object]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}
