"""Does a daemon answer?  Asked by the client of this installation, as a hook would ask."""

import os
import subprocess
import sys
from collections.abc import Mapping

import msgspec

from icd.errors import ServiceFailed
from icd.features.daemon.verbs import Pong

# A cold start on a busy machine; a daemon that is there answers within milliseconds.
PATIENCE_SECONDS = 20
# The client notices its deadline itself; this is for a machine that hangs.
MARGIN_SECONDS = 20
_CLIENT = "import sys; from icctl.client import main; sys.exit(main(sys.argv[1:], 'icctl'))"


def knock(env: Mapping[str, str], socket: str) -> Pong | None:
    """Who answers at this socket; None: nobody is there.  One that hangs is an error."""
    # What the caller has set about intercore is about another socket, or another mode.
    plain = {name: value for name, value in env.items() if not name.startswith("INTERCORE_")}
    words = ["ping", "--json", f"--timeout={PATIENCE_SECONDS}s"]
    try:
        done = subprocess.run(  # noqa: S603 -- the words are ours
            [sys.executable, "-E", "-P", "-c", _CLIENT, *words],
            env={**plain, "INTERCORE_SOCKET": socket}, cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=PATIENCE_SECONDS + MARGIN_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ServiceFailed(f"the client hangs at {socket}") from None
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=Pong)
    if done.returncode == 1:
        return None
    told = os.fsdecode(done.stderr).strip().removeprefix("icctl: ") or "the client failed"
    raise ServiceFailed(f"no call goes through {socket}: {told}")
