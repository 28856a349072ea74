"""The pages of the manual and what they show: blocks of code, commands with their output, links."""

import dataclasses
import doctest
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANUAL = ROOT / "src" / "manual"


def pages():
    """Every page of the repository."""
    skipped = {"node_modules", "build"}
    return sorted(
        page
        for page in ROOT.rglob("*.md")
        if not any(part in skipped or part.startswith((".", "build-")) for part in page.relative_to(ROOT).parts)
    )


def blocks(page, language):
    """The fenced blocks of a language, as text."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


@dataclasses.dataclass
class Step:
    """A command that a page shows, and what it says is printed; `...` stands for any text."""

    command: str
    output: str


def steps(page):
    """The commands of all `console` blocks, in order."""
    found = []
    for block in blocks(page, "console"):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                found.append(Step(line[2:].strip(), ""))
            else:
                found[-1].output += line
    return found


def session_path(first=()):
    """PATH of somebody who has installed ttrace beside a Python with PyTorch; other folders may come before it."""
    folders = [*first, pathlib.Path(os.environ["TTRACE_PROGRAM"]).parent, pathlib.Path(sys.executable).parent]
    return os.pathsep.join([*map(str, folders), os.environ["PATH"]])


def follow(page, directory, environment, timeout, as_compared=str):
    """Runs the page's commands there, with these variables, and holds what they print against what the page says;
    `as_compared` makes of either text what is compared."""
    shown = steps(page)
    assert len(shown) > 2
    for step in shown:
        ran = subprocess.run(
            step.command,
            shell=True,
            cwd=directory,
            env={**os.environ, "PATH": session_path(), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        expected, printed = as_compared(step.output), as_compared(ran.stdout)
        matches = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
        assert matches, f"$ {step.command}\n{ran.stdout}\nexpected:\n{step.output}{_logs(directory)}"


def _logs(directory):
    """The ends of what the session has written to files, where what it prints says too little."""
    paths = sorted(pathlib.Path(directory).glob("*.log"))
    return "".join(f"\n{path.name}:\n{path.read_text()[-4000:]}" for path in paths)


def links(page):
    """The targets of the links to files."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def commands(page):
    """The `ttrace` commands that a page shows in blocks of code, each as one line."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^(?: {4}|\$ | {4}\$ )(ttrace .*)$", text, re.MULTILINE)
    return [line.split(" #")[0].strip() for line in lines]
