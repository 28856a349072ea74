"""Follows the page for people who write a recorder to the letter: Python, C++ and the commands."""

import os
import pathlib

from pages import MANUAL, blocks, follow

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
    environment = {"PYTHONPATH": str(BUILD / "lib/python"), "PKG_CONFIG_PATH": str(tmp_path)}
    follow(PAGE, tmp_path, environment, timeout=120)
