"""Follows the tutorial to the letter, in an empty folder."""

import doctest
import os
import pathlib
import re
import subprocess
import sys

from pages import MANUAL, blocks, steps

TUTORIAL = MANUAL / "tutorial.md"


def rounded(text):
    """The text with numbers as another machine may print them: three digits, and none of a rounding error."""
    text = re.sub(r"\d+(\.\d+)?e-\d+", "#", text)
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.3g}", text)


def test_the_tutorial_can_be_followed(tmp_path):
    (program,) = blocks(TUTORIAL, "python")
    (tmp_path / "train.py").write_text(program)
    folders = [pathlib.Path(os.environ["TTRACE_PROGRAM"]).parent, pathlib.Path(sys.executable).parent]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
    }
    shown = steps(TUTORIAL)
    assert len(shown) > 5
    for step in shown:
        ran = subprocess.run(
            step.command,
            shell=True,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        matches = doctest.OutputChecker().check_output(rounded(step.output), rounded(ran.stdout), doctest.ELLIPSIS)
        assert matches, f"$ {step.command}\n{ran.stdout}\nexpected:\n{step.output}"
    assert (tmp_path / "page.html").stat().st_size > 100_000
