"""Programs that the pages start are quick, but for those of the tutorial: it is followed with Python and torchrun as
they are."""

import subprocess

import pytest

from sweeps import warm


@pytest.fixture(scope="module")
def warm_programs(tmp_path_factory):
    """A folder for the front of PATH."""
    folder = tmp_path_factory.mktemp("warm")
    warm.stand_ins(folder)
    (folder / "nothing.py").touch()
    with warm.server():
        # `ttrace run` goes by how long runs take.
        subprocess.run([folder / "python", folder / "nothing.py"], check=True)
        yield folder
