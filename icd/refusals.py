"""Every way in which runs, gates, dispatches, leases, discoveries and locks say no.

As in `icd.errors`: one class per fact that a caller can act on.
"""

from typing import Any

from icd.errors import IcError, InvalidPayload

# --- runs, gates, dispatches and leases -----------------------------------------------------


class RunNotFound(IcError):
    code, name, exit = -32054, "run_not_found", 1
    hint = "see 'icctl run list'"


class RunOver(IcError):
    code, name, exit = -32055, "run_over", 1
    hint = "what has ended stays so; 'icctl run create' starts another one"


class RunTaken(IcError):
    """`run_id`: who has it."""

    code, name, exit = -32056, "run_taken", 1
    hint = "wait for it, or end it with 'icctl run abandon'; see --takeover-after"

    def __init__(self, message: str, *, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id

    @property
    def data(self) -> dict[str, Any]:
        return super().data | {"run_id": self.run_id}


class PhaseRefused(IcError):
    code, name, exit = -32057, "phase_refused", 1
    hint = "see 'icctl run status'"


class UnknownPhase(IcError):
    """A run that is where its own chain does not lead; only a foreign program writes such a row."""

    code, name = -32072, "unknown_phase"
    hint = "see 'icctl run status'; 'icctl run cancel' ends it"


class RollbackRefused(IcError):
    code, name = -32073, "rollback_refused"
    hint = "only an active or a completed run can be rolled back"


class InvalidChain(IcError):
    code, name, exit = -32058, "invalid_chain", 3
    hint = 'give a JSON array of at least two names, such as ["plan", "work", "done"]'


class InvalidGates(IcError):
    code, name, exit = -32059, "invalid_gates", 3
    hint = "see 'icctl gate rules --json' for the shape of rules"


class UnreadableGates(IcError):
    """Stored rules that this program does not understand: no gate opens by that."""

    code, name = -32075, "unreadable_gates"
    hint = "upgrade intercore if a newer one wrote them; 'icctl gate override' goes on without them"


class AgentNotFound(IcError):
    code, name, exit = -32060, "agent_not_found", 1
    hint = "see 'icctl run agent list'"


class DispatchNotFound(IcError):
    code, name, exit = -32061, "dispatch_not_found", 1
    hint = "see 'icctl dispatch list'"


class DispatchOver(IcError):
    code, name, exit = -32062, "dispatch_over", 1
    hint = "what has ended stays so; see 'icctl dispatch status'"


class DispatchRunning(IcError):
    code, name, exit = -32066, "dispatch_running", 1
    hint = "a dispatch has one process; see 'icctl dispatch status'"


class AgentTaken(IcError):
    code, name, exit = -32067, "agent_taken", 1
    hint = "see 'icctl run agent list'"


class SpawnFailed(IcError):
    code, name = -32063, "spawn_failed"
    hint = "see 'icctl dispatch status'"


class AgentUnreachable(IcError):
    code, name = -32068, "agent_unreachable"
    hint = "try it where the agent was started: on that machine, in that container"


class LeaseHeld(IcError):
    """Somebody else's; `data` tells whose, and for how long."""

    code, name, exit = -32064, "lease_held", 1
    hint = "wait until it expires, or ask its owner to release it"

    def __init__(self, message: str, **claim: str | int) -> None:
        super().__init__(message)
        self.claim = claim

    @property
    def data(self) -> dict[str, Any]:
        return super().data | self.claim


class LeaseLost(IcError):
    code, name, exit = -32065, "lease_lost", 1
    hint = "stop the work that it guards, then acquire it again"


# --- discoveries ----------------------------------------------------------------------------


class DiscoveryNotFound(IcError):
    code, name, exit = -32088, "discovery_not_found", 1
    hint = "see 'icctl discovery list'"


class DuplicateDiscovery(IcError):
    code, name, exit = -32089, "duplicate_discovery", 1
    hint = "nothing was changed; 'icctl discovery score' gives it another score"


class DiscoveryRefused(IcError):
    code, name, exit = -32090, "discovery_refused", 1
    hint = "see 'icctl discovery status'"


class InvalidScore(IcError):
    code, name, exit = -32091, "invalid_score", 3
    hint = "a score is a number from 0 to 1"


class InvalidVector(IcError):
    code, name = -32092, "invalid_vector"
    hint = "an embedding is little-endian float32, at least one of them not zero"


class DimensionMismatch(IcError):
    code, name = -32093, "dimension_mismatch"
    hint = "all embeddings of a source have the same dimension; use another source"


class NoEmbedding(IcError):
    code, name, exit = -32095, "no_embedding", 1
    hint = "submit it with --embedding, or search with --embedding"


class ProfileConflict(IcError):
    code, name, exit = -32094, "profile_conflict", 1
    hint = "read it again with 'icctl discovery profile --json', then try again"


class InvalidWeights(InvalidPayload):
    code, name = -32096, "invalid_weights"
    hint = 'give an object of numbers, such as {"rust": 0.5, "java": -1}'


# --- locks ----------------------------------------------------------------------------------


class LockHeld(IcError):
    code, name, exit, retryable = -32080, "lock_held", 1, True
    hint = "wait for it, or give more time with --timeout"


class NotHolder(IcError):
    code, name, exit = -32081, "not_holder", 1
    hint = "see 'icctl lock list'"


class NoOwner(IcError):
    code, name = -32083, "no_owner"
    hint = "name a process that stays, with --owner=PID:HOST"


class CannotRun(IcError):
    code, name = -32082, "cannot_run"
    hint = "is it spelled correctly, and executable?"
