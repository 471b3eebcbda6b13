"""The settings that hold, each with where it comes from."""

from collections.abc import Iterator

from msgspec import Struct, structs

from icd.config.files import dotted, place
from icd.config.lines import Path, paths
from icd.config.settings import CHANNELS, Channel, Settings, complete
from icd.config.sources import VARIABLES, Given, load, read

DEFAULT = "default"


class Setting(Struct, frozen=True):
    """`origin` is `default`, `FILE:LINE` or `$VARIABLE`."""

    name: str
    value: object
    origin: str


def trace(user: str | None, project: str | None, given: Given) -> list[Setting]:
    """Everything that can be set, in a fixed order, as `load` would have it."""
    settings = _in_full(load(user, project, given))
    origins = {
        path: place(file.path, file.lines.get(path))
        for file in read(user, project)
        for path in paths(file.values)
    }
    origins |= {(name,): f"${VARIABLES[name]}" for name in given}
    return [
        Setting(dotted(path), value, origins.get(path, DEFAULT))
        for path, value in _leaves(structs.asdict(settings), ())
    ]


def _in_full(settings: Settings) -> Settings:
    """With the channels that are there by default, and with what their tables left out."""
    given = settings.mirror.channels
    channels = {key: complete(key, given.get(key, Channel())) for key in {**CHANNELS, **given}}
    return structs.replace(settings, mirror=structs.replace(settings.mirror, channels=channels))


def _leaves(values: dict[str, object], at: Path) -> Iterator[tuple[Path, object]]:
    for name, value in values.items():
        inner = structs.asdict(value) if isinstance(value, Struct) else value
        if isinstance(inner, dict):
            yield from _leaves(inner, (*at, name))
        else:
            yield (*at, name), inner
