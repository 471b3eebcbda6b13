"""Code that is broken on purpose in several places: each of them alone would be harmless."""

from pathlib import Path

from tests.torture.code import Code, broken

# A file, what stands in it exactly once, and what stands there then.
Change = tuple[str, str, str]


def broken_by(directory: Path, *changes: Change) -> Code:
    code = broken(directory, *changes[0])
    for file, old, new in changes[1:]:
        text = (code.root / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} of what is to be broken: {old}"
        (code.root / file).write_text(text.replace(old, new))
    return code
