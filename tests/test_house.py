"""What must not slip back, counted by tests/support/house.py; `make house` prints it all.

Each limit is what is true today, or the target of ADR 18 where that is reached.
"""

import re

import pytest

from icd.app import registry
from tests.support import house

ARCHITECTURE = house.ROOT / "docs" / "architecture.md"


def test_no_folder_is_too_large_to_be_read():
    sizes = {folder: size for folder, size in house.folders().items() if size > 15}

    assert sizes == {}


def test_modules_are_few_and_each_has_a_reason():
    assert len(house.modules()) <= 320
    assert len(house.imported_once()) <= 62
    assert len(house.tiny()) <= 5


def test_no_module_is_too_long_to_be_read():
    long = {file: size for file in house.proper().values() if (size := house.lines(file)) > 471}

    assert long.keys() <= {"icd/errors.py"}  # one table, a few lines for each error


def test_functions_are_short():
    sizes = house.function_lengths()

    assert sizes[len(sizes) // 2] <= 6
    assert sizes[len(sizes) * 9 // 10] <= 19


def test_every_command_stands_in_the_room_of_its_noun():
    elsewhere = [command for command, is_there in house.rooms().items() if not is_there]

    assert elsewhere == []


@pytest.mark.parametrize("part", house.PARTS)
def test_a_part_of_the_server_is_found_in_one_guess(part):
    assert (house.ROOT / "icd" / house.PARTS[part]).is_file()


def test_a_verb_costs_four_files():
    assert len(house.files_of_a_verb(*house.EXAMPLE)) <= 4


def test_a_method_has_few_fields():
    assert house.fields_of_a_method() <= 9


def test_a_column_is_spelled_in_few_files():
    assert len(house.files_with("budget_warn_pct", *house.PRODUCT)) <= 4


def test_broad_excepts_are_few():
    assert house.broad_excepts() <= 10


def test_the_way_of_a_call_does_not_grow():
    files, changes, _ = house.walk()

    assert files <= 26
    assert changes <= 76


def test_retired_words_stay_retired():
    assert house.retired_words() < 10
    assert house.retired_phrases() == []


def test_no_row_stands_where_no_noun_leads():
    listed = {name for name, file in house.proper().items() if "\nVERBS = [" in house.source(file)}
    rows = [command.row for command in registry.commands().values()]
    found = {row.form.__module__ for row in rows}
    found |= {method.params.__module__ for method in registry.every()}

    assert listed - found == set()


def test_code_in_the_architecture_is_code_of_the_product():
    shown = re.findall(
        r"^ *```python\n(.*?)^ *```", ARCHITECTURE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    product = _bare("\n".join(house.source(file) for file in house.modules().values()))

    assert len(shown) == 4
    for block in shown:
        assert _bare(block) in product


def _bare(text):
    """Without indentation, which differs on a page."""
    return "\n".join(line.strip() for line in text.strip().split("\n"))
