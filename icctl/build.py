"""Building the installed commands; run by hatchling, not part of the installed package.

With a C compiler `icctl` and `ic` are the native client, and the wheel is one of this platform.
Without one they are the Python client, and the wheel is for any platform.  `icctl-python` is
always the Python client.  INTERCORE_KEYHOLE=off builds the latter on purpose, `require` fails
where the former cannot be built.  A wheel has the manual pages, too.

INTERCORE_PLATFORM names another platform, for which CC compiles (`make dist`): the client is then
linked statically, for it must run with whatever libc is there.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = ("client", "ensure", "event", "helper", "hold", "hook", "spawn")
SOURCES = tuple(f"icctl/{part}.c" for part in PARTS)
FLAGS = [
    *("-std=c11", "-O2", "-s", "-fPIE"),
    *("-Wall", "-Wextra", "-Werror"),
    *("-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"),
]
# Without a dynamic linker the command starts a fifth faster; not every system has a static libc.
# Fewer segments are fewer pages to load.
LINKS = (("-static-pie", "-Wl,-z,noseparate-code"), ("-static-pie",), ("-pie",))
# The same in the words of Zig, which cannot link fewer segments.
LINKS_ELSEWHERE = (("-static", "-pie"),)


class Commands(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.place = tempfile.TemporaryDirectory(prefix="intercore-build-")
        self.platform = os.environ.get("INTERCORE_PLATFORM")
        if version == "standard":  # else they are found in the checkout
            for name in ("lib-intercore.sh", "lib-intercore", "systemd"):
                build_data["force_include"][name] = f"icd/{name}"
            self.manual(build_data)
        python = os.path.join(self.root, "icctl", "bin", "icctl-python")
        scripts = {python: "icctl-python"}
        native = self.compile()
        if native:
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{self.platform or here}"
            build_data["pure_python"] = False
        for name in ("icctl", "ic"):
            copy = os.path.join(self.place.name, name)
            shutil.copy(native or python, copy)
            scripts[copy] = name
        build_data["shared_scripts"].update(scripts)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        self.place.cleanup()

    def manual(self, build_data: dict[str, Any]) -> None:
        """Put the manual pages where `man` looks beside an installed command."""
        target = os.path.join(self.place.name, "man")
        program = [sys.executable, "-B", "-c", "from icd.__main__ import main; main()"]
        try:
            command = [*program, "manual", target]
            subprocess.run(command, cwd=self.root, capture_output=True, check=True)
        except subprocess.CalledProcessError as exc:
            told = exc.stderr.decode(errors="replace")
            self.app.display_warning(f"the manual pages cannot be written: {told}")
        else:
            build_data["shared_data"][target] = "share/man"

    def compile(self) -> str | None:
        """The path of the native client, if it can be built."""
        wish = os.environ.get("INTERCORE_KEYHOLE", "auto")
        compiler = os.environ.get("CC", "").strip() or shutil.which("cc") or shutil.which("gcc")
        if wish == "off" or (not compiler and wish != "require"):
            return None
        target = os.path.join(self.place.name, "client")
        version = f'-DINTERCORE_VERSION="{self.metadata.version}"'
        told = "no C compiler found; set CC"
        links = LINKS_ELSEWHERE if self.platform else LINKS
        for link in links if compiler else ():
            command = [*shlex.split(str(compiler)), *FLAGS, version, *link, *SOURCES, "-o", target]
            try:
                subprocess.run(command, cwd=self.root, capture_output=True, check=True)
            except subprocess.CalledProcessError as exc:
                told = exc.stderr.decode(errors="replace")
            except OSError as exc:
                told = str(exc)
            else:
                return target
        if wish == "require":
            raise RuntimeError(f"the native client cannot be built: {told}")
        self.app.display_warning(
            f"the native client cannot be built, using the Python client: {told}"
        )
        return None
