"""Help: complete, 80 columns wide, and with examples."""

import re

import click
import pytest

from icd.__main__ import commands
from icd.app import parser, registry
from icd.app.flags import _SWITCHES, _VALUED
from icd.app.reference import help as texts
from icd.app.reference.openrpc import about
from icd.app.reference.openrpc import descriptions as parameters
from icd.app.verb import Option, hints, parts

EVERY = registry.commands()


def lines(text):
    return text.decode().splitlines()


# The commands are many, and each is quick: a test of all says which one is wrong.
def test_the_help_of_a_command_names_all_its_options(invoke):
    for name, command in EVERY.items():
        output = invoke(*name.split(), "--help")
        text = output.stdout.decode()

        assert (output.exit, output.stderr) == (0, b""), name
        for parameter in command.click.params:
            if isinstance(parameter, click.Option):
                assert all(option in text for option in parameter.opts), (name, parameter)
                assert parameter.help, (name, parameter)
                assert parameter.help.split()[0] in text, (name, parameter)


def test_the_help_of_a_command_fits_80_columns(invoke):
    for name in EVERY:
        text = invoke(*name.split(), "--help", program="icctl").stdout

        assert [line for line in lines(text) if len(line) > texts.WIDTH] == [], name


def test_the_help_of_a_command_starts_with_its_usage_and_has_an_example(invoke):
    for name in EVERY:
        text = invoke(*name.split(), "--help", program="ic").stdout.decode()

        assert text.startswith(f"Usage: ic {name}"), name
        assert "Example" in text, name
        assert f"icctl {name}" in text, name


def test_the_help_of_a_command_explains_the_flags_of_every_command(invoke):
    for name in EVERY:
        text = invoke(*name.split(), "--help").stdout.decode()

        assert all(flag in text for flag in (_SWITCHES | _VALUED) - {"-h"}), name
        assert "Exit codes: " in text, name


def test_there_are_several_ways_to_ask_for_help(invoke):
    for name in EVERY:
        words = name.split()
        asked = invoke(*words, "--help")

        for way in (["--help", *words], [*words, "-h"], ["help", *words]):
            assert invoke(*way) == asked, way


def test_help_is_given_whatever_else_is_wrong(invoke):
    assert invoke("state", "set", "--nonsense", "--help").exit == 0


@pytest.mark.parametrize("noun", registry.GROUPS)
def test_the_help_of_a_noun_lists_its_verbs(invoke, noun):
    output = invoke(noun, "--help")
    text = output.stdout.decode()

    assert output.exit == 0
    assert all(f"{noun} {verb}" in text for verb in registry.verbs(noun))
    assert [line for line in lines(output.stdout) if len(line) > texts.WIDTH] == []


def test_options_stand_in_their_written_order(invoke):
    for name, command in EVERY.items():
        text = invoke(*name.split(), "--help").stdout.decode()
        listed = text.partition("\nOptions:\n")[2].partition("\nEverywhere:\n")[0]
        row = command.row

        written = [field.typed for field in parser.fields(row.form, row.order)]

        assert re.findall(r"^  (?:-\w, )?(--[\w-]+)", listed, re.MULTILINE) == [
            typed.name for typed in written if isinstance(typed, Option)
        ], name


@pytest.mark.parametrize("name", [name for name, command in EVERY.items() if command.row.order])
def test_an_order_names_options_once_and_does_not_reverse_them(name):
    row = EVERY[name].row
    options = [f.name for f in parser.fields(row.form) if isinstance(f.typed, Option)]

    assert len(set(row.order)) == len(row.order)
    assert set(row.order) <= set(options)
    assert list(row.order) != options[::-1] or len(options) <= 2


NOUNS_BELOW = [(noun, word) for noun in registry.GROUPS for word in registry.below(noun)]


@pytest.mark.parametrize("words", [["run", "--help"], ["help", "run"], ["run", "-h"]])
def test_the_help_of_a_noun_lists_the_nouns_below_it_after_its_verbs(invoke, words):
    text = invoke(*words).stdout.decode()

    assert re.findall(r"^  (run .*?)  ", text, re.MULTILINE)[-3:] == [
        "run agent VERB",
        "run action VERB",
        "run artifact VERB",
    ]


@pytest.mark.parametrize("noun, word", NOUNS_BELOW)
def test_the_help_of_a_noun_says_what_the_nouns_below_it_are(invoke, noun, word):
    about = registry.GROUPS[f"{noun} {word}"][1].capitalize()

    text = invoke(noun, "--help").stdout.decode()

    assert re.search(rf"^  {noun} {word} VERB +{re.escape(about)}\.$", text, re.MULTILINE)


@pytest.mark.parametrize("noun, word", NOUNS_BELOW)
@pytest.mark.parametrize("verb", [["nonsense"], []])
def test_a_wrong_verb_is_told_the_nouns_below_too(invoke, noun, word, verb):
    output = invoke(noun, *verb)

    assert output.exit == 3
    assert re.search(rf"\b{word}\b", output.stderr.decode())


@pytest.mark.parametrize("argv", [[], ["help"], ["--help"], ["-h"], ["--json"]])
def test_without_a_command_the_usage_is_printed(invoke, argv):
    output = invoke(*argv)

    assert (output.exit, output.stderr) == (0, b"")
    assert output.stdout == texts.usage("icctl")


def test_the_usage_lists_every_command_and_fits_80_columns():
    usage = texts.usage("icctl")

    assert all(f"  {name} " in usage.decode() for name in EVERY)
    assert [line for line in lines(usage) if len(line) > texts.WIDTH] == []


def test_the_usage_shows_the_name_that_the_program_was_called_by():
    assert texts.usage("ic").startswith(b"Usage: ic COMMAND")


# --- what is written ---

# A description says what an option does, or names what it takes; these words avoid both.
AVOIDED = {
    "also", "and", "anything", "as", "do", "else", "for", "from", "how", "it", "its", "kept",
    "more", "of", "one", "only", "others", "see", "so", "that", "the", "then", "these", "those",
    "to", "what", "whatever", "when", "where", "whether", "which", "who", "whose", "why",
}  # fmt: skip
VERBS = re.findall(
    r"\w+",
    """
    abandon acknowledge acquire add advance back cancel change check claim clear close compare
    convert
    copy count create delete deliver describe diagnose dismiss exit export extend find follow
    import increment inspect install kill list move multiply negotiate print promote rank read
    rebuild record reduce register release reload remove renew replace reserve restore return run send
    serve set show skip start stop store submit transfer trust update wait write
    """,
)


def first_word(text):
    return re.match(r"[\w-]*", text)[0].lower()


def descriptions():
    """Whatever describes an option, an argument or a parameter, by its name."""
    for name, command in EVERY.items():
        for field in parser.fields(command.row.form, command.row.order):
            yield f"{name} {field.name}", field.typed.help
    for method in registry.every():
        for field, hint in hints(method.params).items():
            marks = [getattr(mark, "description", None) for mark in parts(hint)[1]]
            yield from ((f"{method.name} {field}", text) for text in marks if text)
    for command in commands().commands.values():
        yield from (
            (f"icd {o.name}", o.help) for o in command.params if isinstance(o, click.Option)
        )
    yield from texts.GLOBALS


def test_every_option_has_a_sentence_that_says_what_it_does_or_takes():
    wrong = {
        name: text
        for name, text in descriptions()
        if not re.match(r"[A-Z].*\.$", text) or first_word(text) in AVOIDED or "see below" in text
    }

    assert wrong == {}


def test_the_help_of_a_command_starts_with_one_sentence_that_says_what_to_do():
    for name in EVERY:
        first = EVERY[name].click.help.strip().split("\n\n")[0]

        for sentence in (first, EVERY[name].row.summary):
            assert re.fullmatch(r"[A-Z][^\n]*[^.]\.", sentence), name
            assert ". " not in sentence, name
            assert first_word(sentence) in VERBS, name


def test_the_description_of_a_method_starts_with_what_it_does():
    said = {method.name: about(method.params) for method in registry.every()}

    assert {name: text for name, text in said.items() if first_word(text) not in VERBS} == {}


# What a command does, and a method does not: one reads and prints, the other is sent and answers.
OF_COMMANDS = re.compile(
    r"@FILE|\$[A-Z]|\bstd(in|out|err)\b|\b[Ee]xits?\b(?! status)|\b[Pp]rint|--\w|icctl|"
    r"\bterminal\b|separated by tabs|per line|the current directory|\b(RUN|SEQ|FILE|KEY|SCOPE)\b"
)


def test_the_description_of_a_method_says_nothing_of_the_command_line():
    for method in [method for method in registry.every() if method.name != "cli.run"]:
        said = {"": about(method.params), **parameters(method.params)}

        assert {name: text for name, text in said.items() if OF_COMMANDS.search(text)} == {}, method
        assert [name for name in method.params.__struct_fields__ if not said.get(name)] == [], (
            method
        )
