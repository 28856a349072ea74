"""What the pages show exists: links, commands and their options, a page for each command."""

import os
import re
import shlex
import subprocess

import pytest
from pages import MANUAL, ROOT, commands, links, pages

TTRACE = os.environ["TTRACE_PROGRAM"]


def help_of(*command):
    return subprocess.run([TTRACE, *command, "--help"], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def subcommands():
    listed = help_of().partition("Commands:\n")[2].partition("\n\n")[0]
    return {line.split()[0] for line in listed.splitlines() if line.strip()}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    missing = [target for target in links(page) if not (page.parent / target).exists()]
    assert missing == []


def test_every_command_has_a_page(subcommands):
    assert subcommands - {"help"} <= {page.stem for page in MANUAL.glob("*.md")}


def test_commands_that_pages_show_have_the_options_that_they_use(subcommands):
    shown = [(page, line) for page in pages() for line in commands(page)]
    assert len(shown) > 50
    wrong = []
    helps = {name: help_of(name) for name in subcommands - {"help"}}
    for page, line in shown:
        words = shlex.split(line.replace("[", "").replace("]", ""), comments=True)
        if words[1] in ("help", "--version", "--help"):
            continue
        if words[1] not in subcommands:
            wrong.append((page.name, line, f"no command {words[1]}"))
            continue
        own = words[2 : words.index("--")] if "--" in words else words[2:]
        for word in own:
            if re.match(r"--?[a-z]", word) and not re.search(
                rf"(^|[\s,]){re.escape(word.split('=')[0])}\b", helps[words[1]]
            ):
                wrong.append((page.name, line, word))
    assert wrong == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
