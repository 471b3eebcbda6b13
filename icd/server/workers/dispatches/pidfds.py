"""Being told that a process has ended, by the kernel and at once."""

import asyncio
import os
from collections.abc import Callable, Iterable

from icd import procfs
from icd.values import processes
from icd.values.processes import Process


class Pidfds:
    """`ended` is called, in the event loop, when one of those that are watched has ended."""

    def __init__(self, ended: Callable[[], None], *, most: int) -> None:
        self._ended = ended
        self._most = most
        self._open: dict[Process, int] = {}

    def watch(self, wanted: Iterable[Process]) -> None:
        """Watch these from now on, and no others; what cannot be watched is left out."""
        chosen = set(wanted)
        for process in [known for known in self._open if known not in chosen]:
            self._forget(process)
        for process in chosen - self._open.keys():
            if len(self._open) < self._most:
                self._begin(process)

    def close(self) -> None:
        self.watch([])

    def _begin(self, process: Process) -> None:
        if process.pidns != procfs.namespace():
            return
        try:
            fd = os.pidfd_open(process.pid)
        except (OSError, AttributeError):
            return  # it is gone, or the kernel is too old: whoever looks now and then will know
        self._open[process] = fd
        # Its number may have been another process's by the time it was opened.
        if processes.liveness(process) == "dead":
            self._forget(process)
            self._ended()
        else:
            asyncio.get_running_loop().add_reader(fd, self._end, process)

    def _end(self, process: Process) -> None:
        self._forget(process)
        self._ended()

    def _forget(self, process: Process) -> None:
        fd = self._open.pop(process)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
