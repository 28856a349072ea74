"""The benchmarks of `tools/bench` that make traces byte by byte, or call the library as no other program does, work
with what is there now. What they measure is looked at by people."""

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "laboratory" / "benchmarks"))


@pytest.mark.parametrize(
    "name, arguments, shards",
    [("index", ["--ranks", "128", "--processes", "1"], 81_920), ("align", ["--ranks", "256"], 157_248)],
)
def test_indexes_of_many_ranks_are_read_and_aligned(tmp_path, name, arguments, shards):
    # Not by tools/bench, which builds first: other tests run the programs meanwhile.
    benchmark = importlib.import_module(name)
    parser = argparse.ArgumentParser()
    benchmark.add_options(parser)
    options = parser.parse_args(arguments)
    options.build, options.json = Path(os.environ["TTRACE_BUILD"]), tmp_path / "measured.json"
    assert benchmark.run(options) == 0
    rows = json.loads(options.json.read_text())
    assert [(row["threads"], row["shards"]) for row in rows] == [(1, shards), (2, shards)]


def test_checkpoints_of_two_formats_are_compared(tmp_path):
    benchmark = importlib.import_module("checkpoints")
    parser = argparse.ArgumentParser()
    benchmark.add_options(parser)
    options = parser.parse_args(["--gib", "0.0625", "--dir", str(tmp_path), "--python", sys.executable])
    options.build, options.json = Path(os.environ["TTRACE_BUILD"]), tmp_path / "measured.json"
    assert benchmark.run(options) == 0
    figures = json.loads(options.json.read_text())
    assert figures["bytes"] > 2 * 64 << 20 and min(figures["ttrace_gbps"], figures["numpy_gbps"]) > 0
