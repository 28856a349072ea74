"""`tools/bench` makes traces byte by byte, and calls the library as no other program does: it works with what is there
now. What it measures is looked at by people."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench"


@pytest.mark.parametrize(
    "arguments, shards",
    [(["index", "--ranks", "128", "--processes", "1"], 81_920), (["align", "--ranks", "256"], 157_248)],
)
def test_indexes_of_many_ranks_are_read_and_aligned(tmp_path, arguments, shards):
    measured = tmp_path / "measured.json"
    build = ["--build", os.environ["TTRACE_BUILD"]]
    done = subprocess.run(
        [sys.executable, BENCH, arguments[0], *build, "--json", measured, *arguments[1:]],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["shards"] for row in json.loads(measured.read_text())] == [shards]
