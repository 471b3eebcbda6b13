"""A checkpoint that another program has begun: the main file changes, and nothing is overwritten."""

import subprocess
import sys
import time
from pathlib import Path

from icd import config
from icd.db.database import Database
from icd.features.state import store as state
from icd.values.processes import Writer

NOW_MS = 1_800_000_000_000
# As SQLite begins: it says how far it wants to come, and then writes pages to the main file.  From
# another process, because closing the index here would drop the locks of the connection.
BEGIN = """
import os, struct, sys
index = os.open(sys.argv[1] + "-shm", os.O_RDWR)
(frames,) = struct.unpack_from("=I", os.pread(index, 48, 0), 16)
os.pwrite(index, struct.pack("=I", frames), 128)
main = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(main, b"\\0" * 4096, os.fstat(main).st_size)
"""


def test_a_checkpoint_that_is_under_way_is_not_taken_for_an_overwritten_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / ".clavain" / "intercore.db"
    database = Database(str(path), config.DEFAULTS)
    with database.hold(time.monotonic() + 5, create=True):
        state.set(database.connection(create=True), "k", "s", "1", writer=Writer(), now_ms=NOW_MS)
    log = path.with_name("intercore.db-wal").read_bytes()

    for _ in range(3):  # from the second look on, only the main file is another
        subprocess.run([sys.executable, "-c", BEGIN, str(path)], check=True)
        with database.hold(time.monotonic() + 5):
            assert state.get(database.connection(), "k", "s", now_ms=NOW_MS) is not None

    assert path.with_name("intercore.db-wal").read_bytes() == log
    database.close()
    database.lock.close()
