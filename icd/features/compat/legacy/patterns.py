"""Which legacy files there are, and what they mean.

A *document* holds JSON; it becomes state.  A *guard* means something by existing since its mtime;
it becomes a sentinel, once-only (interval 0) or with the interval that its hooks ask with.  The
part of the name where the pattern has its `*` is the scope.
"""

from msgspec import Struct

from icd import config

FOLDER = "/tmp"
INTERBAND = ".interband"  # in the home directory


class Pattern(Struct, frozen=True):
    """`interval_s`: None for a document.  `unnamed`: the scope where the `*` is empty."""

    key: str
    prefix: bytes
    suffix: bytes = b""
    interval_s: int | None = None
    ttl_ms: int = 0
    unnamed: bytes = b""
    envelope: bool = False

    def scope(self, name: bytes) -> bytes | None:
        """The scope that a file of this name is about; None if it is another kind of file."""
        if not (name.startswith(self.prefix) and name.endswith(self.suffix)):
            return None
        if len(name) < len(self.prefix) + len(self.suffix):
            return None
        return name[len(self.prefix) : len(name) - len(self.suffix)] or self.unnamed


# In the legacy directory.
FILES = [
    # All sessions share one; its hooks ask with the scope "global".
    Pattern("autopub", b"clavain-autopub", b".lock", interval_s=60, unnamed=b"global"),
    Pattern("bead", b"clavain-bead-", b".json"),
    Pattern("catalog_remind", b"clavain-catalog-remind-", b".lock", interval_s=0),
    Pattern("compound_throttle", b"clavain-compound-last-", interval_s=300),
    # A cache: its readers take nothing older than a minute.
    Pattern("discovery_brief", b"clavain-discovery-brief-", b".cache", ttl_ms=60_000),
    Pattern("dispatch", b"clavain-dispatch-", b".json"),
    Pattern("drift_throttle", b"clavain-drift-last-", interval_s=600),
    # Touched by its hooks and never read: a guard, whatever its name suggests.
    Pattern("handoff", b"clavain-handoff-", interval_s=0),
    Pattern("stop", b"clavain-stop-", interval_s=0),
]

# Below the interband root, <namespace>/<channel>/<scope>.json, the payload in an envelope.
CHANNELS = {key: channel.path or "" for key, channel in config.CHANNELS.items()}

KEYS = sorted({pattern.key for pattern in FILES} | CHANNELS.keys())


def envelopes(key: str) -> Pattern:
    return Pattern(key, b"", b".json", envelope=True)
