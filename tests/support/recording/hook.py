"""A hook that keeps what its agent sends: `python3 hook.py DIRECTORY EVENT`.

One file per call.  It imports nothing of ours: it runs wherever the agent is.  Of the environment
it keeps names only, because agents hand tokens to their hooks.
"""

import json
import os
import sys
import time

AGENTS = ("CLAUDE", "CODEX", "GEMINI", "CURSOR")


def main() -> None:
    directory, event = sys.argv[1:]
    told = sorted(name for name in os.environ if name.startswith(AGENTS))
    kept = {"event": event, "sent": sys.stdin.read(), "environment": told}
    path = os.path.join(directory, f"{time.time_ns()}-{os.getpid()}")
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(kept, file)
    os.rename(f"{path}.new", f"{path}.json")


if __name__ == "__main__":
    main()
