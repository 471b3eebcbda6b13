"""What the machines of all nouns have in common."""

from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.torture.hosts import Host, Reply


class Machine(RuleBasedStateMachine):
    """A model of a noun beside a host; each example is a project of its own."""

    host: ClassVar[Host]

    def __init__(self) -> None:
        super().__init__()
        self.host.fresh()

    @property
    def now(self) -> int:
        return self.host.wall.now_ms

    def ask(self, method: str, **params: Any) -> Reply:
        """Whatever is answered; only that it is a bug is never an answer."""
        reply = self.host.ask(method, **params)
        assert reply.error != "internal", f"{method} {params}: {reply.message}"
        return reply

    def result(self, method: str, **params: Any) -> Any:
        """What a call answers that must not be refused."""
        reply = self.ask(method, **params)
        assert not reply.error, f"{method} {params} was refused: {reply.error}, {reply.message}"
        return reply.result

    def refused(self, why: str, method: str, **params: Any) -> None:
        reply = self.ask(method, **params)
        assert reply.error == why, f"{method} {params}: expected {why!r}, got {reply}"
