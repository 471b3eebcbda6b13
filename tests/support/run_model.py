"""A run, told simply: phases are positions in a list, gates are three questions."""

from dataclasses import dataclass, field

# What stands between two phases, in the words of the model.
GATES = {
    ("brainstorm", "brainstorm-reviewed"): lambda m: "brainstorm" in m.artifacts,
    ("brainstorm-reviewed", "strategized"): lambda m: "brainstorm-reviewed" in m.artifacts,
    ("strategized", "planned"): lambda m: "strategized" in m.artifacts,
    ("planned", "executing"): lambda m: "planned" in m.artifacts,
    ("executing", "review"): lambda m: m.agents == 0,
    ("review", "polish"): lambda m: m.passed,
    ("reflect", "done"): lambda m: "reflect" in m.artifacts,
}


@dataclass
class Model:
    """A run, told simply."""

    id: str
    chain: tuple[str, ...]
    scope: str | None
    seen: int  # its last sign of life
    status: str = "active"
    place: int = 0
    auto: bool = True
    skips: set[str] = field(default_factory=set)
    artifacts: list[str] = field(default_factory=list)
    agents: int = 0
    passed: bool = False
    working: int = 0  # dispatches under way
    told: list[tuple[str, str, str]] = field(default_factory=list)

    def named(self, step: int | str) -> str:
        """A phase so many steps away, round the ends."""
        if isinstance(step, str):
            return step
        return self.chain[(self.place + step) % len(self.chain)]

    @property
    def phase(self) -> str:
        return self.chain[self.place]

    def next(self, skips) -> int:
        last = len(self.chain) - 1
        return next(
            i for i in range(self.place + 1, last + 1) if i == last or self.chain[i] not in skips
        )

    def opens(self, to: int) -> bool:
        steps = [(self.chain[i], self.chain[i + 1]) for i in range(self.place, to)]
        return all(GATES[step](self) for step in steps if step in GATES)

    def go(self, to: int) -> None:
        self.place = to
        if to == len(self.chain) - 1:
            self.status = "completed"
