"""Wrong steps of parameters in bf16 that their optimizer updates without masters: what is lost in the rounding of a
single element shows over all of them."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def collect(runs, tmp_path_factory):
    """The trace of two iterations, made when first asked for."""
    directory = tmp_path_factory.mktemp("half")

    def collected(optimizer, fault, ranks=1):
        trace = directory / f"{optimizer}-{fault}-{ranks}"
        if not trace.exists():
            python = pathlib.Path(sys.executable)
            launch = [python.parent / "torchrun", "--standalone", "--nproc-per-node", ranks] if ranks > 1 else [python]
            words = [ROOT / "tools/evaluations/half_step.py", optimizer, fault, "--steps", 2]
            words += ["--strategy", "fsdp2-tp"] if ranks > 1 else []
            runs.run(0, runs.program, "collect", "-o", trace, "--iterations", "0,1", "--", *launch, *words)
        return trace

    return collected


@pytest.mark.parametrize(("optimizer", "ranks"), [("adam-fused", 1), ("sgd-momentum", 1), ("adamw", 4)])
def test_a_step_that_is_1_percent_small_is_named_and_a_right_one_is_not(runs, collect, optimizer, ranks):
    steps = runs.abft(collect(optimizer, "none", ranks), expect=0)["optimizer_steps"]
    assert steps["parameters_checked"] == steps["parameters"] == 39
    root = runs.abft(collect(optimizer, "slightly-small", ranks), expect=1)["root_cause"]
    assert (root["kind"], root["reason"], root["iteration"]) == ("param_delta", "step-differs", 0), root["message"]
    assert "the update is 0.99" in root["message"]
    assert "tensors: single elements are explained by rounding" in root["message"]


@pytest.mark.parametrize("optimizer", ["adam-fused", "sgd-momentum"])
def test_one_tensors_step_that_is_20_percent_large_is_named(runs, collect, optimizer):
    report = runs.abft(collect(optimizer, "one-large"), expect=1)
    wrong = {(each["name"], each["reason"]) for each in report["findings"] if each["verdict"] == "fail"}
    assert wrong == {("layers.0.attention.wq.weight", "step-differs")}
