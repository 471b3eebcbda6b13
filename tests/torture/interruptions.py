"""What befalls a daemon: it is stopped, killed or reloaded, and another one takes its place.

Or it pauses, wherever it is at the moment, and goes on as if nothing had been.
"""

import signal
from collections.abc import Callable

from tests.support.processes import Daemon
from tests.torture.suite import Broken

WAYS = ("stop", "kill", "kill", "reload", "pause")
CALM_SECONDS = (0.1, 0.5)  # between two of them


def interrupt(daemon: Daemon, way: str, pause: Callable[[], object]) -> None:
    """`pause`: how long there is no daemon, or none that answers."""
    assert daemon.process is not None
    if daemon.process.poll() is not None:
        said = daemon.log.read_text()[-2000:]
        raise Broken(f"the daemon ended by itself, status {daemon.process.returncode}: {said}")
    if way == "reload":
        daemon.process.send_signal(signal.SIGHUP)
        return
    if way == "pause":
        daemon.process.send_signal(signal.SIGSTOP)
        pause()
        daemon.process.send_signal(signal.SIGCONT)
        return
    daemon.kill() if way == "kill" else daemon.stop()
    pause()  # without a daemon, files are used
    daemon.start()
