"""Runs real programs under `ttrace collect` and reads what they leave.

The program under test is build/bin/ttrace, or what the environment variable TTRACE_PROGRAM names; Python and torchrun
are those that run the tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rank_file import RankFile

from sweeps import launch, warm

HERE = Path(__file__).resolve().parent

TTRACE = os.environ.get("TTRACE_PROGRAM", str(HERE.parent.parent / "build" / "bin" / "ttrace"))
PYTHON = sys.executable
TIMEOUT = 120


def run(command, **options):
    environment = dict(os.environ, OMP_NUM_THREADS="1", **options.pop("environment", {}))
    return subprocess.run(
        [str(part) for part in command], env=environment, capture_output=True, text=True, timeout=TIMEOUT, **options
    )


class Collected:
    def __init__(self, process, directory):
        self.process, self.directory = process, directory

    def __repr__(self):  # what a failed assertion shows
        return f"exit code {self.code}, stdout:\n{self.stdout}\nstderr:\n{self.process.stderr}"

    @property
    def code(self):
        return self.process.returncode

    @property
    def stdout(self):
        return self.process.stdout

    @property
    def messages(self):
        """Our lines on stderr, without figures of time."""
        return [line for line in self.process.stderr.splitlines() if line.startswith("ttrace:")]

    def rank(self, rank=0):
        return RankFile(self.directory / f"rank-{rank:05}.h5")


@pytest.fixture
def collect(tmp_path):
    """collect(*options, command=[...], **subprocess options) -> Collected"""
    count = 0

    def collect(*options, command, **subprocess_options):
        nonlocal count
        count += 1
        directory = tmp_path / f"trace{count}"
        process = run([TTRACE, "collect", "-o", directory, *options, "--", *command], **subprocess_options)
        return Collected(process, directory)

    return collect


@pytest.fixture(scope="module")
def warm_programs():
    """For tests that are about what is recorded, and not about how a process comes into being."""
    with warm.server():
        yield


def python(path, *arguments):
    return [PYTHON, *([warm.__file__] if warm.SOCKET in os.environ else []), path, *arguments]


def ranks(count, path, *arguments):
    """As torchrun, in less time."""
    return python(launch.__file__, str(count), path, *arguments)


def program(name, *arguments):
    return python(HERE / "programs" / f"{name}.py", *arguments)


@pytest.fixture
def script(tmp_path):
    """script(text) -> a command that runs it"""
    count = 0

    def script(text, *arguments):
        nonlocal count
        count += 1
        path = tmp_path / f"script{count}.py"
        path.write_text(text)
        return python(path, *arguments)

    return script
