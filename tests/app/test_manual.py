"""Manual pages: complete, and clean to those who read roff."""

import re
import shutil
import subprocess
import sys

import click
import pytest

from icd.__main__ import commands
from icd.app import registry
from icd.app.reference import help as texts
from icd.app.reference import manual
from icd.config import VARIABLES

ICD = commands()
PAGES = manual.pages(ICD)


def plain(page):
    """What a reader sees of a page, roughly: without macros and escapes."""
    text = re.sub(r"^\.(SH|SS|TP|PP|EX|EE|TH) ?", "", page, flags=re.MULTILINE)
    for character, escape in manual._ESCAPES.items():
        if character != "\\":
            text = text.replace(escape, character)
    return re.sub(r"\\f[BR]|\\&", "", text).replace("\\e", "\\")


def test_every_command_of_icctl_is_on_its_page_with_its_options_and_examples():
    for name in registry.commands():
        page = plain(PAGES["man1/icctl.1"])
        _, found, described = page.partition(f'"icctl {name} ')
        described = described.partition('"icctl ')[0]
        command = registry.commands()[name].click

        assert found, name
        assert f"icctl {name}" in described, name  # the example
        for param in command.params:
            if isinstance(param, click.Option):
                assert f"{param.opts[0]}" in described, name
                assert param.help in described, name


def test_the_page_of_icctl_has_what_holds_for_all_commands():
    page = plain(PAGES["man1/icctl.1"])

    for form, about in texts.GLOBALS:
        assert f"{form}\n{about}\n" in page
    for variable in VARIABLES.values():
        assert variable in page


@pytest.mark.parametrize("name", ICD.commands)
def test_every_command_of_icd_is_on_its_page_with_its_options(name):
    _, found, described = plain(PAGES["man8/icd.8"]).partition(f'"icd {name} ')

    assert found
    for param in ICD.commands[name].params:
        assert param.opts[0] in described or isinstance(param, click.Argument)


@pytest.mark.parametrize("path", PAGES)
def test_a_line_begins_with_a_control_character_only_for_a_known_macro(path):
    odd = [line for line in PAGES[path].splitlines() if line[:1] in {".", "'"}]

    macros = re.compile(r"\.(TH .*|SH \".*\"|SS \".*\"|TP|PP|EX|EE|so man1/icctl\.1)")
    assert [line for line in odd if not macros.fullmatch(line)] == []
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", PAGES[path])


@pytest.mark.parametrize("path", [path for path in PAGES if path != "man1/ic.1"])
def test_groff_has_nothing_to_say(path):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed; it is Debian's package groff-base")

    shown = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-P-cbou"], input=PAGES[path].encode(), capture_output=True, check=True
    )  # fmt: skip

    assert shown.stderr == b""
    assert b"EXIT STATUS" in shown.stdout
    assert b"--db PATH" in shown.stdout or path == "man8/icd.8"


def test_text_that_looks_like_roff_is_text():
    assert manual.escaped(".x\n'y\n\\z -") == "\\&.x\n\\(aqy\n\\ez \\-"


def test_the_pages_are_written_below_a_directory(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "icd", "manual", tmp_path / "man"], capture_output=True, text=True, check=True
    )  # fmt: skip

    written = [tmp_path / "man" / path for path in PAGES]
    assert ran.stdout.splitlines() == [str(path) for path in written]
    assert [path.read_text() for path in written] == list(PAGES.values())


def test_a_directory_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "man1").touch()

    ran = subprocess.run(
        [sys.executable, "-m", "icd", "manual", tmp_path], capture_output=True, text=True, check=False
    )  # fmt: skip

    assert ran.returncode == 2
    assert ran.stderr.startswith("icd: cannot write the manual: ")
