"""A recorder and a reader of traces for tests: the C API by ctypes, and `ttrace inspect --json`."""

import json
import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("TTRACE_BUILD", pathlib.Path(__file__).parents[2] / "build"))
LIBRARY = BUILD / "lib" / "libttrace.so"
PROGRAM = BUILD / "bin" / "ttrace"
C_PROGRAM = BUILD / "tests" / "record_trace"


def inspect(directory, *options):
    """The parsed JSON of `ttrace inspect`, which must succeed."""
    run = subprocess.run([PROGRAM, "inspect", directory, "--json", *options], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture
def trace_directory(tmp_path):
    return tmp_path / "trace"
