"""A checkout to work in: what the repository holds, with a .ttrace of its own, and a Python that starts quickly."""

import os
import pathlib
import subprocess

import pytest

from sweeps import warm

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["TTRACE_BUILD"]).resolve()


class Checkout:
    def __init__(self, directory):
        self.directory = directory

    def __call__(self, *words, expect=0, **environment):
        """Runs a command there."""
        result = subprocess.run(
            [str(word) for word in words],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=400,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        assert result.returncode == expect, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkout")
    for name in ("annotations", "tools"):
        (directory / name).symlink_to(ROOT / name)
    (directory / "build").symlink_to(BUILD)
    programs = directory / ".venv" / "bin"
    programs.mkdir(parents=True)
    python = ROOT / ".venv" / "bin" / "python"
    warm.stand_ins(programs, python)
    checkout = Checkout(directory)
    git = ("git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    checkout(*git, "init", "-q")
    checkout(*git, "add", "tools", "annotations")
    checkout(*git, "commit", "-q", "-m", "all of it")
    with warm.server(python):
        yield checkout
