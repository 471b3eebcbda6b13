"""What it takes for rows to become files: the user wants that, and trusts the database."""

from pathlib import Path

from icd import trust


def want(home: Path) -> None:
    (home / ".interband").mkdir(exist_ok=True)


def accept(home: Path, project: Path) -> None:
    """As `icctl trust` does, for a database that was made with another home directory."""
    trust.grant(str(home), str(project / ".clavain" / "intercore.db"))
