"""Follows the page for people who write a recorder to the letter: Python, C++ and the commands."""

import doctest
import os
import pathlib
import subprocess
import sys

from pages import MANUAL, blocks, steps

PAGE = MANUAL / "recording.md"
BUILD = pathlib.Path(os.environ["TTRACE_BUILD"]).resolve()
PC = """\
Name: ttrace
Description: of the build tree
Version: 0
Cflags: -I{include}
Libs: -L{lib} -Wl,-rpath,{lib} -lttrace
"""


def test_the_page_can_be_followed(tmp_path):
    (python,), (cpp,) = blocks(PAGE, "python"), blocks(PAGE, "cpp")
    (tmp_path / "mlp.py").write_text(python)
    (tmp_path / "mlp.cpp").write_text(cpp)
    (tmp_path / "ttrace.pc").write_text(PC.format(include=MANUAL.parents[1] / "include", lib=BUILD / "lib"))
    folders = [pathlib.Path(os.environ["TTRACE_PROGRAM"]).parent, pathlib.Path(sys.executable).parent]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
        "PYTHONPATH": str(BUILD / "lib/python"),
        "PKG_CONFIG_PATH": str(tmp_path),
    }
    shown = steps(PAGE)
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
            timeout=120,
        )
        matches = doctest.OutputChecker().check_output(step.output, ran.stdout, doctest.ELLIPSIS)
        assert matches, f"$ {step.command}\n{ran.stdout}\nexpected:\n{step.output}"
