"""What must not get out: the daemon's environment into children, payloads into logs."""

import json
import os
import shutil
from pathlib import Path

from icd.features.triggers.process import PASSED_ON
from tests.support import mirrors
from tests.support.processes import until
from tests.torture import frames
from tests.torture.suite import Broken
from tests.torture.target import Target

# Of the daemon that intruders are let loose on; nothing of it is anybody else's business.
HIDDEN = {
    "ICD_HIDDEN": "of-the-daemon-only-51c2",
    "BASH_ENV": "/of-the-daemon-only-51c2",
    "ENV": "/of-the-daemon-only-51c2",
    "LD_LIBRARY_PATH": "/of-the-daemon-only-51c2",
    "AWS_SECRET_ACCESS_KEY": "of-the-daemon-only-51c2",
    "IC_LOG_LEVEL": "DEBUG",
}
MARK = "of-the-daemon-only-51c2"
# What a shell adds by itself.
SHELLS_OWN = {"_", "PWD", "SHLVL", "OLDPWD"}
FACTS = {"INTERCORE_HOOK", "INTERCORE_PROJECT", "INTERCORE_DB", "INTERCORE_REDELIVERY"}


def environment_of_hooks(target: Target) -> None:
    """By name: what is not on the list is not passed on, whatever an event is called."""
    hooks = target.project / ".clavain" / "hooks"
    found = target.daemon.home / "environment"
    found.unlink(missing_ok=True)
    hooks.mkdir(mode=0o755)
    try:
        (hooks / "on-event").write_text(
            f"#!/bin/sh\nenv -0 >{found}.part\nmv {found}.part {found}\n"
        )
        (hooks / "on-event").chmod(0o755)
        if target.icctl("hooks", "trust", "on-event").exit:
            raise Broken("a sound hook was refused")
        target.daemon.call(
            "events.record", cwd=str(target.project), source="notes",
            type="x LD_PRELOAD=/evil.so", run_id="r';touch${IFS}evil;'",
        )  # fmt: skip
        until(found.exists)
        _judge(found.read_text())
    finally:
        target.icctl("hooks", "untrust", "on-event")
        shutil.rmtree(hooks)


def _judge(text: str) -> None:
    given = dict(line.split("=", 1) for line in text.split("\0") if line)
    names = set(given) - SHELLS_OWN - PASSED_ON - FACTS
    extra = {name for name in names if not name.startswith(("LC_", "INTERCORE_EVENT_"))}
    if extra or MARK in text:
        raise Broken(f"a hook was given {sorted(extra)}: {text!r}")


def environment_of_agents(target: Target) -> None:
    """An agent has its caller's environment; a daemon, or a frame, adds nothing to it."""
    evil = {"LD_PRELOAD": "/evil.so", "PATH": "/evil", "BASH_ENV": "/evil", "PYTHONPATH": "/evil"}
    argv = ("dispatch", "spawn", "--", "touch", str(target.outside / "ran"))
    if target.ask(*argv, env=evil).what != "local":
        raise Broken("the daemon starts agents itself")
    output = target.daemon.home / f"agent-{target.run.rng.randrange(2**32)}"
    caller = {"OF_THE_CALLER": "yes"}
    spawned = target.icctl(
        "dispatch", "spawn", f"--output={output}", "--", "/usr/bin/env", "-0", env=caller
    )
    if spawned.exit:
        raise Broken(f"no agent was started: {spawned}")
    dispatch = spawned.stdout.decode().split()[0]
    waited = target.icctl("dispatch", "wait", dispatch, "--timeout=45s")
    given = output.read_text()
    if MARK in given or "OF_THE_CALLER=yes" not in given.split("\0"):
        raise Broken(f"an agent was given {given!r}; {waited}")


def secrets_in_logs(target: Target) -> None:
    """Payloads and environments, of calls that succeed and of calls that fail in every way."""
    token = f"token-{target.run.rng.randrange(2**64):x}"
    cwd = str(target.project)
    request = {"jsonrpc": "2.0", "id": 1, "method": "state.set"}
    params = {"cwd": cwd, "key": "k", "scope_id": "quiet", "payload": {"t": token}}
    for data in (
        json.dumps({**request, "params": params}),
        json.dumps({**request, "params": {**params, "payload": token * 50_000}}),
        json.dumps({**request, "params": {**params, "key": "NOT A KEY"}}),
        json.dumps({**request, "params": {**params, "unknown": token}}),
        json.dumps({**request, "params": params})[:-1],
        json.dumps({**request, "params": token}),
        f"{token}" * 3,
    ):
        frames.send(target.daemon, data.encode() + b"\n")
    for argv in (
        ("state", "set", "k", "quiet", f'--value={{"t":"{token}"}}', "--verbose"),
        ("state", "set", "k", "quiet", f'--value={{"t":"{token}"'),
        ("state", "set", "k", "quiet", f'--value="password={token}"'),
        ("state", "incr", "k", "quiet"),
        ("events", "record", "--source=notes", "--type=t", f"--payload={token}"),
        ("discovery", "submit", "--source=s", "--source-id=1", f"--metadata={token}"),
    ):
        target.ask(*argv, env={"HIDDEN": token, "CLAUDE_SESSION_ID": "s"})
    frames.send(target.daemon, b"ic1 2\0astate\0e" + token.encode() + b"\0")
    target.ask("state", "delete", "k", "quiet")
    told = {"the log": target.daemon.log.read_text()}
    for argv in (("doctor",), ("doctor", "--json"), ("status", "--json"), ("metrics",)):
        reply = target.icctl(*argv)
        told[" ".join(argv)] = (reply.stdout + reply.stderr).decode()
    for where, text in told.items():
        for secret in (token, MARK):
            if secret in text:
                at = text.index(secret)
                raise Broken(f"{where} tells a secret: {text[max(0, at - 300) : at + 50]!r}")


def mirrored_names(target: Target) -> None:
    """A scope becomes the name of a file, and nothing but a name."""
    root = target.daemon.home / ".interband"
    scope = target.run.rng.choice(["../../../x", "/etc/x", "..", ".", "a/../../../x", "../" * 40])
    where = {"cwd": str(target.project), "key": "dispatch", "scope_id": scope}
    mirrors.want(target.daemon.home)
    mirrors.accept(target.daemon.home, target.project)
    before = _files(root)
    target.daemon.call("state.set", **where, payload={"name": "n", "workdir": "/", "turns": 1})
    try:
        for path in _files(root) - before:
            if not Path(os.path.realpath(path)).is_relative_to(root):
                raise Broken(f"{scope!r} was mirrored to {path}")
    finally:
        target.daemon.call("state.delete", **where)


def _files(root: Path) -> set[Path]:
    return set(root.rglob("*")) if root.exists() else set()
