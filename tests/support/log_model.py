"""The log of events and those who read it, told simply."""

NOW = 1_800_000_000_000
DURABLE, SHORT = "durable", "short"


class Model:
    """The log as a list of (seq, run, time), cursors as numbers."""

    def __init__(self):
        self.now = NOW
        self.log = []
        self.head = 0
        self.pruned = 0
        self.cursors = {}
        self.shown = {}

    def after(self, since, run_id):
        return [s for s, run, _ in self.log if s > since and run_id in ("", run)]

    def prune(self, end):
        gone = [row for row in self.log if row[0] <= end]
        if gone:
            self.log = self.log[len(gone) :]
            self.pruned = max(self.pruned, end)

    def floor(self):
        return min((seq for (c, _), seq in self.cursors.items() if c == DURABLE), default=self.head)
