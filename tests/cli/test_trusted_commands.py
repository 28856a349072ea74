"""A command that a trace names is shown, and run only where the user says so: whoever wrote the trace chose it."""

import json
import os
import pty
import shlex
import shutil
import subprocess
import sys

import numpy
import pytest
from program import PROGRAM

from traces import Tensor, record_run

SIDES = ("--reference", "reference", "--candidate", "candidate", "-t", "default")


def block(scale):
    values = numpy.arange(1, 13, dtype="float32").reshape(3, 4)
    return [Tensor("mlp", values, kind="input"), Tensor("mlp", values * scale)]


def leaves(name):
    return ["touch", name]


@pytest.fixture
def pair(tmp_path):
    """A candidate that differs, whose trace names a command of its author's."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    record_run(tmp_path / "reference", [block(1)])

    def make(command):
        shutil.rmtree(tmp_path / "candidate", ignore_errors=True)
        provenance = json.dumps({"command": command, "directory": str(elsewhere)})
        return record_run(tmp_path / "candidate", [block(3)], provenance=provenance)

    make(leaves("PWNED"))
    return make


def was_run(tmp_path):
    return [path.name for path in tmp_path.rglob("*") if path.name in ("PWNED", "typed")]


def test_localize_shows_the_command_that_a_trace_names_and_does_not_run_it(ttrace, pair, tmp_path):
    error = ttrace.refuses("localize", *SIDES)
    assert error == (
        f"candidate: names the command `{shlex.join(leaves('PWNED'))}`, in {tmp_path / 'elsewhere'}, and what a trace "
        "names is not run unasked; expected the candidate's command after --, or --run-recorded where you made the "
        "trace yourself"
    )
    assert was_run(tmp_path) == []


def test_localize_runs_what_was_typed_or_what_it_is_told_to(ttrace, pair, tmp_path):
    ttrace("localize", *SIDES, "-o", "one", "--", *leaves("typed"), code=2)  # it records nothing
    assert was_run(tmp_path) == ["typed"] and (tmp_path / "typed").exists()
    ttrace("localize", *SIDES, "-o", "two", "--run-recorded", code=2)
    assert (tmp_path / "elsewhere" / "PWNED").exists()


@pytest.mark.parametrize("answer, is_run", [("\n", False), ("n\n", False), ("y\n", True)])
def test_at_a_terminal_localize_asks(pair, ttrace, tmp_path, answer, is_run):
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "localize", *SIDES], cwd=tmp_path, stdin=terminal, stderr=terminal, stdout=subprocess.DEVNULL
    )
    shown = b""
    while b"[y/N] " not in shown:
        shown += os.read(keyboard, 4096)
    assert b"PWNED" in shown and str(tmp_path / "elsewhere").encode() in shown
    os.write(keyboard, answer.encode())
    assert process.wait(timeout=60) == 2
    os.close(terminal)
    os.close(keyboard)
    assert bool(was_run(tmp_path)) == is_run


def test_the_line_that_check_proposes_runs_nothing_beside_ttrace(ttrace, pair, tmp_path):
    pair(["/bin/sh", "-c", "true; touch PWNED"])
    stdout, _ = ttrace("check", *SIDES, code=1)
    (line,) = [line[6:] for line in stdout.splitlines() if line.startswith("next: ")]
    assert line.endswith(" -- /bin/sh -c 'true; touch PWNED'")
    subprocess.run(["sh", "-c", f"ttrace() {{ :; }}; {line}"], cwd=tmp_path, check=True)
    assert was_run(tmp_path) == []


def test_what_lies_in_the_directory_of_a_dump_is_not_imported(ttrace, tmp_path):
    numpy.savez(tmp_path / "dump.npz", m=numpy.ones((3, 4), "float32"))
    for module in ("argparse", "json", "numpy", "runpy", "torch", "ttrace_import", "ttrace_torch"):
        (tmp_path / f"{module}.py").write_text("open('PWNED', 'w')")
    python = tmp_path / "python"  # as Python before 3.11, which has no such variable
    python.write_text(f'#!/bin/sh\nunset PYTHONSAFEPATH\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    words = ("--kind", "output", "--pattern", "*::{name}", "--python", "./python")
    ttrace("import", "files", "dump.npz", "-o", "imported", *words, code=0)
    other = tmp_path / "other.npz"
    numpy.savez(other, m=numpy.ones((3, 4), "float32"))
    ttrace("check", "--reference", "dump.npz", "--candidate", "other.npz", "--python", "./python", code=0)
    assert was_run(tmp_path) == []
