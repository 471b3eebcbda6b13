"""Lines of an export about a discovery: one of each kind, as a database holds them."""

import struct

from tests.support.lines import (
    Discovery,
    Embedding,
    EmbeddingSource,
    Feedback,
    Profile,
)

NOW = 1_800_000_000_000
_S = NOW // 1000

VECTOR = struct.pack("<3f", 1, 0, -2)
DISCOVERY = Discovery(
    "disc1", "arxiv", "2401.1", "a title", "a summary", "https://example.org", '{"a": 1}', 725_000,
    900_000, "scored", "run1", None, _S, NOW, NOW + 1, None, _S, None, 1,
)  # fmt: skip
SOURCE = EmbeddingSource("arxiv", 3)
EMBEDDING = Embedding("disc1", "arxiv", VECTOR)
FEEDBACK = Feedback(1, "disc1", "up", '{"why": "x"}', "me", _S, None)
PROFILE = Profile(1, 4, VECTOR, '{"rust": 0.5}', '{"arxiv": -1}', _S)
ALL = (DISCOVERY, SOURCE, EMBEDDING, FEEDBACK, PROFILE)
