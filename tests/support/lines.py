"""The lines of an export, each kind by the name of what it tells, and how they are taken in."""

from msgspec import structs

from icd.features.database.export import End, Header, decoder, kinds
from icd.features.database.import_ import Import

Migration, Counter = kinds()["migrations"], kinds()["counters"]
State, Sentinel, Request = kinds()["state"], kinds()["sentinels"], kinds()["requests"]
Event, Cursor, HookPosition = kinds()["events"], kinds()["cursors"], kinds()["hook_positions"]
Run, RunSkip, RunAgent = kinds()["runs"], kinds()["run_skips"], kinds()["run_agents"]
RunArtifact, RunAction, Dispatch, Lease, Reservation = (
    kinds()[table]
    for table in ("run_artifacts", "run_actions", "dispatches", "leases", "reservations")
)
Session, Attribution = kinds()["sessions"], kinds()["attributions"]
Lane, LaneMember = kinds()["lanes"], kinds()["lane_members"]
Discovery, EmbeddingSource, Embedding, Feedback, Profile = (
    kinds()[table]
    for table in (
        "discoveries", "embedding_sources", "embeddings", "feedback_signals", "interest_profile"
    )
)  # fmt: skip

__all__ = [
    "Counter", "Cursor", "Discovery", "Dispatch", "Embedding", "EmbeddingSource", "End", "Event",
    "Feedback", "Header", "HookPosition", "Lane", "LaneMember", "Lease", "Migration", "Profile", "Request", "Run",
    "RunAction", "RunAgent", "RunArtifact", "RunSkip", "Sentinel", "State", "decoded", "take",
]  # fmt: skip


def take(conn, *lines, now_ms):
    """Whether each was written, as one file; the lines themselves stay as they are."""
    file = Import(conn, now_ms=now_ms)
    return [file.take(structs.replace(line)) for line in lines]


def decoded(text):
    return decoder().decode(text)
