"""Correct parallel programs are called the same, with every tensor of the reference compared: one of each kind."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def sweep(*arguments, expect=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "tools" / "laboratory")}
    result = subprocess.run(
        [sys.executable, "-m", "sweeps", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=1500,
    )
    assert result.returncode == expect, result.stdout + result.stderr
    return result


@pytest.mark.nightly  # a part of tools/sweep
def test_every_kind_of_correct_configuration_is_the_same_and_covered_whole(tmp_path):
    sweep("--quick", "--json", tmp_path / "sweep.json")
    result = json.loads((tmp_path / "sweep.json").read_text())
    assert result["configurations"] >= 12
    assert result["same"] == result["configurations"] and result["different"] == 0
    assert result["coverage_min"] == 1
    for row in result["rows"]:
        assert row["pass"] > 500 and row["fail"] == row["missing"] == 0, row
        # What is waved through is little.
        assert row["untrusted"] <= 0.05 * row["compared"], row


def test_the_whole_sweep_has_at_least_sixty_configurations():
    assert len(sweep("--list").stdout.splitlines()) >= 60


def test_a_configuration_that_there_is_not_is_refused():
    assert "--only 'tp64': no configuration has that in its name" in sweep("--only", "tp64", expect=2).stderr
