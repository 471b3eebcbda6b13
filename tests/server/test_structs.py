"""Threads decode structs, at once and for the first time: those of databases, and a user's."""

import subprocess
import sys

LEARN = """
from collections import deque
from icd.server.main import _loading
deque(_loading(), 0)
"""
# Each struct is decoded by four threads at once; the interpreter goes from one to the other as
# often as it can.  A struct that msgspec does not know yet is found half made, sooner or later.
DECODE = """
import sys, threading
import msgspec
def every(kind):
    for below in kind.__subclasses__():
        yield below
        yield from every(below)
kinds = [kind for kind in set(every(msgspec.Struct)) if kind.__module__.startswith("icd.")]
never = {"Ask", "Call", "Context", "World", "Writes", "_Slot"}  # decoded: they hold functions
kinds = [kind for kind in kinds if kind.__name__ not in never]
assert len(kinds) > 300, len(kinds)
start = threading.Barrier(4)
def decode():
    for kind in kinds:
        last = kind.__struct_encode_fields__[-1:]  # of what is half made, it has no type yet
        start.wait()
        try:
            msgspec.json.decode(msgspec.json.encode(dict.fromkeys(last)), type=kind)
        except msgspec.ValidationError:
            pass
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_may_decode_any_struct_of_the_daemon_first():
    done = subprocess.run(
        [sys.executable, "-c", LEARN + DECODE], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


CALL = """
import sys, threading
import msgspec
from icctl.api import requests
from icd.app import registry
names = [method.name for method in registry.every()]
def call():
    for name in names:
        start.wait()
        spec = requests.spec(name)
        last = getattr(spec.method.result, "__struct_encode_fields__", ("a",))[-1:]
        try:
            spec.read_result(msgspec.json.encode(dict.fromkeys(last)))
        except msgspec.ValidationError:
            pass
start = threading.Barrier(4)
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_threads_of_a_user_may_call_any_method_first():
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


LOAD = """
import sys, threading, types
from icd.server import structs
done = threading.Event()
names = [f"made{number}" for number in range(100)]
def load():
    while not done.is_set():
        for name in names:
            sys.modules[name] = types.ModuleType(name)
        for name in names:
            del sys.modules[name]
sys.setswitchinterval(1e-6)
thread = threading.Thread(target=load)
thread.start()
try:
    for _ in range(1000):
        structs.learn()
finally:
    done.set()
    thread.join()
"""


def test_modules_are_learnt_while_another_thread_loads_some():
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
