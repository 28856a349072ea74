"""Help pages: each command has one that fits a terminal, with examples and exit codes."""

import re
import subprocess

import pytest

from traces import PROGRAM

COLUMNS = 80


def page(*words):
    result = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def listed_commands():
    listed = re.search(r"^Commands:\n((?: .*\n)+)", page("--help"), re.MULTILINE).group(1)
    return re.findall(r"^  (\S+)", listed, re.MULTILINE)


COMMANDS = listed_commands()


def test_the_commands_are_listed():
    assert {"collect", "check", "run", "explain", "lint", "help"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_a_help_page_fits_a_terminal_and_has_examples_and_exit_codes(command):
    help = page(*command, "--help")
    assert [line for line in help.splitlines() if len(line) > COLUMNS] == []
    assert "Usage: " + " ".join(("ttrace", *command)) + " [OPTIONS]" in help
    assert re.search(r"^Examples:\n  ttrace ", help, re.MULTILINE)
    assert re.search(r"^Exit codes: ", help, re.MULTILINE)
    assert not re.search(r"\{false\}|\(\d*x\)", help)  # CLI11's own words
    assert not re.search(r"\s$", help[:-1]) and not re.search(r" $|\n\n\n", help, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_about_a_command_is_what_the_command_says(command):
    assert page("help", command) == page(command, "--help")


def test_the_version_names_the_libraries():
    first, second, third = page("--version").splitlines()
    assert re.fullmatch(r"ttrace \d+\.\d+\.\d+", first)
    parts = second.removeprefix("built with ").split(", ")
    assert re.fullmatch(r"MPI: (no|[A-Za-z ]+ [\d.]+)", third)
    assert len(parts) > 10 and all(re.fullmatch(r"[\w-]+ v?[\d.]+", part) for part in parts), second


def test_every_command_says_what_the_terminal_shows():
    for command in COMMANDS:
        assert {"--color", "--quiet", "--verbose"} <= set(re.findall(r"--[a-z]+", page(command, "--help")))


def test_help_about_nothing_lists_the_commands():
    assert page("help") == page("--help")


def test_the_examples_name_commands_and_options_that_exist():
    for words in [(), *((command,) for command in COMMANDS)]:
        examples = page(*words, "--help").split("\nExamples:\n", 1)[1].replace("\\\n", "")
        for command, rest in re.findall(r"^  ttrace (\S+)(.*)$", examples, re.MULTILINE):
            options = re.findall(r"(?<= )--?[a-z][a-z-]*", re.split(r" -- | # | \| ", rest)[0])
            known = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", page(command, "--help").split("\nExamples:")[0])
            assert set(options) <= set(known), (command, rest)
