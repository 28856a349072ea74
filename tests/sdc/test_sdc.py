"""Real runs of one program, on nodes that compute right, wrong once, and never the same."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from sweeps import warm

ROOT = pathlib.Path(__file__).resolve().parents[2]
TTRACE = pathlib.Path(os.environ["TTRACE_PROGRAM"])
NODE = pathlib.Path(__file__).parent / "programs" / "on_a_node.py"
SWEEPS = ROOT / "tools" / "laboratory" / "sweeps"
LAUNCH = [sys.executable, SWEEPS / "warm.py", SWEEPS / "launch.py"]

MODEL = ["--tp", "2", "--layers", "2", "--steps", "2", "--micro-batches", "2"]


def run(*command, expect=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=environment, timeout=300
    )
    assert result.returncode == expect, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module", autouse=True)
def warm_programs():
    with warm.server():
        yield


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """trace("name", node) records two iterations on that node once; returns the directory."""
    directory = tmp_path_factory.mktemp("sdc")

    def make(name, node="well", *options):
        if not (directory / name).exists():
            run(
                TTRACE,
                "collect",
                "-o",
                directory / name,
                "--axes",
                "tp=2",
                "--iterations",
                "0-1",
                *options,
                "--",
                *LAUNCH,
                2,
                NODE,
                node,
                *MODEL,
            )
        return directory / name

    return make


def sdc(healthy, suspect, *options, expect):
    return run(TTRACE, "sdc", "--healthy", healthy, "--suspect", suspect, *options, expect=expect)


def test_two_runs_on_healthy_nodes_are_equal_to_the_bit(trace):
    assert sdc(trace("healthy"), trace("again"), expect=0).stdout.startswith("same: equal to the bit\n")


def test_a_flipped_bit_is_found_where_it_was_flipped(trace, tmp_path):
    # Product 6 of a forward of two layers with 4 each and the head is layer 1's linear_fc1.
    flipped = trace("flipped", "1:6:13")
    result = sdc(
        trace("healthy"),
        flipped,
        "--rerun",
        trace("again"),
        "--json",
        "-",
        "--csv",
        tmp_path / "csv",
        "--html",
        tmp_path / "page.html",
        expect=1,
    )
    report = json.loads(result.stdout)
    assert report["verdict"] == "different" and len(report["origins"]) == 1
    (origin,) = report["origins"]
    assert (origin["name"], origin["kind"]) == ("decoder.layers.1.mlp.linear_fc1", "output")
    assert (origin["iteration"], origin["microbatch"], origin["rank"]) == (0, 0, 1)
    assert origin["differing"] == 1 and origin["index"] == [0, 0, 100]
    assert int(origin["healthy_bits"], 16) ^ int(origin["suspect_bits"], 16) == 1 << 13
    assert report["first"] == origin
    # The error spreads: gradients have noise, parameters drift apart and stay so.
    assert 0 < report["worst_noise_to_signal"] < 1
    assert all(step["parameter_drift"] > 0 for step in report["steps"])
    lines = (tmp_path / "csv" / "submodules.csv").read_text().splitlines()
    assert lines[0].startswith("submodule,direction,iteration,microbatch,")
    (row,) = [line for line in lines if line.startswith("decoder.layers.*.mlp.linear_fc1,forward,0,0,")]
    assert row.split(",")[5] == "1"
    assert len((tmp_path / "csv" / "steps.csv").read_text().splitlines()) == 3
    lines = (tmp_path / "csv" / "ranks.csv").read_text().splitlines()
    of_ranks = [line.split(",") for line in lines if line.startswith("decoder.layers.*.mlp.linear_fc1,forward,0,0,")]
    assert [(row[4], row[6]) for row in of_ranks] == [("0", "0"), ("1", "1")]
    assert f"<h1>different: {report['differing_tensors']} of" in (tmp_path / "page.html").read_text()


def test_in_lock_step_the_numbers_are_of_the_wrong_call_alone(trace):
    healthy = trace("healthy")
    own = json.loads(sdc(healthy, trace("flipped", "1:6:13"), "--json", "-", expect=1).stdout)
    assert not own["lock_step"] and any(note.startswith("not in lock step") for note in own["notes"])
    injected = trace("in lock step", "1:6:13", "--inject", healthy, "--inject-params", healthy)
    report = json.loads(sdc(healthy, injected, "--json", "-", expect=1).stdout)
    assert report["lock_step"] and not any(note.startswith("not in lock step") for note in report["notes"])
    hit = [(row["type"], row["direction"]) for row in report["submodules"] if row["frequency_max"] > 0]
    assert ("decoder.layers.*.mlp.linear_fc1", "forward") in hit
    assert len(hit) < len([row for row in own["submodules"] if row["frequency_max"] > 0]) / 2
    (origin,) = [origin for origin in report["origins"] if origin["iteration"] == 0 and origin["kind"] == "output"]
    assert origin["name"] == "decoder.layers.1.mlp.linear_fc1" and origin["ranks"] == 1


def test_in_lock_step_a_healthy_node_is_equal_to_the_bit_in_every_iteration(trace):
    healthy = trace("healthy")
    again = trace("well in lock step", "well", "--inject", healthy, "--inject-params", healthy)
    assert sdc(healthy, again, "--rerun", trace("again"), expect=0).stdout.startswith("same: equal to the bit\n")


def test_a_suspect_that_was_given_a_third_runs_values_is_refused(trace):
    other = trace("given others", "well", "--inject", trace("again"))
    refusal = sdc(trace("healthy"), other, expect=2)
    assert "given other values" in refusal.stderr


def test_a_program_that_does_not_repeat_itself_is_refused_with_advice(trace):
    noisy = trace("noisy", "noise")
    refusal = sdc(trace("healthy"), noisy, expect=2)
    assert refusal.stdout == ""
    assert "with equal inputs in every one of 2 micro-steps" in refusal.stderr and "--rerun" in refusal.stderr
    refusal = sdc(noisy, trace("healthy"), "--rerun", trace("noisy-again", "noise"), expect=2)
    assert "the program is not deterministic" in refusal.stderr
    assert "torch.use_deterministic_algorithms(True)" in refusal.stderr


def test_runs_that_began_differently_are_refused(trace, tmp_path):
    run(
        TTRACE,
        "collect",
        "-o",
        tmp_path / "other",
        "--axes",
        "tp=2",
        "--iterations",
        "0-1",
        "--",
        *LAUNCH,
        2,
        NODE,
        "well",
        *MODEL,
        "--seed",
        7,
    )
    refusal = sdc(trace("healthy"), tmp_path / "other", expect=2)
    assert "expected the same initial parameters and data" in refusal.stderr
