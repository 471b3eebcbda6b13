"""Lines of an export about a run: one of each kind, as a database holds them."""

from tests.support.lines import Dispatch, Run, RunAction, RunAgent, RunArtifact, RunSkip

NOW = 1_800_000_000_000
_S = NOW // 1000

RUN = Run(
    "run1", "/p", "ship it", "active", "executing", 3, 0, 1, 0, "bead-1", '["executing", "done"]',
    "[]", 1000, 80, 1, "anything", "{}", "session", 41, 7, "boot", "pid:[1]", _S, NOW, _S, NOW,
    None, 3, 2, 1,
)  # fmt: skip
SKIP = RunSkip("run1", "review", "small", _S)
AGENT = RunAgent("agent1", "run1", "claude", "reviewer", "active", "disp1", _S, _S)
ARTIFACT = RunArtifact("art1", "run1", "planned", "a b.md", "file", "sha256:0", None, "active", _S)
ACTION = RunAction(
    "run1", "planned", "/work", 1, "command", '["${run_id}"]', "both", -1, _S, _S, NOW
)
DISPATCH = Dispatch(
    "disp1", "run1", "bead-1", None, "codex", "running", "reviewer", "m", "read-only", "/p",
    "p.md", "0f", "out.md", "out.md.verdict", 60_000, 41, 7, 42, 8, "another boot", "pid:[1]", None,
    None, None, None, 1, 2, 3, 4, 5, None, "session", _S, NOW, _S, None, 2,
)  # fmt: skip
ALL = (RUN, SKIP, AGENT, ARTIFACT, ACTION, DISPATCH)
