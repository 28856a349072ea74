"""A checkout to work in: what the repository holds, with a .ttrace of its own."""

import os
import pathlib
import subprocess

import pytest

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
    for name in ("annotations", "tools", ".venv"):
        (directory / name).symlink_to(ROOT / name)
    (directory / "build").symlink_to(BUILD)
    checkout = Checkout(directory)
    git = ("git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    checkout(*git, "init", "-q")
    checkout(*git, "add", "tools", "annotations")
    checkout(*git, "commit", "-q", "-m", "all of it")
    return checkout
