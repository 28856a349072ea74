"""Wrong steps of parameters in bf16 that their optimizer updates without masters: what is lost in the rounding of a
single element shows over all of them."""

import pathlib

import pytest

from sweeps import warm

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def collect(runs, tmp_path_factory):
    """The trace of two iterations, made when first asked for."""
    directory = tmp_path_factory.mktemp("half")

    def collected(optimizer, fault, ranks=1):
        trace = directory / f"{optimizer}-{fault}-{ranks}"
        if not trace.exists():
            words = [ROOT / "tools/laboratory/evaluations/half_step.py", optimizer, fault, "--steps", 2]
            words += ["--strategy", "fsdp2-tp"] if ranks > 1 else []
            command = warm.command(*words, ranks=ranks)
            runs.run(0, runs.program, "collect", "-o", trace, "--iterations", "0,1", "--", *command)
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


FROZEN = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(torch.bfloat16)
model[0].requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
if sys.argv[1] == "changed":
    optimizer.register_step_post_hook(lambda *_: model[0].weight.data.mul_(1.5))
for _ in range(2):
    model(torch.ones(4, 8, dtype=torch.bfloat16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_frozen_parameter_of_the_optimizer_is_right_unless_it_changes(runs, tmp_path):
    program = tmp_path / "frozen.py"
    program.write_text(FROZEN)

    def abft(word, expect):
        trace = tmp_path / word
        command = ["collect", "-o", trace, "--iterations", "0,1", "--", *warm.command(program, word)]
        runs.run(0, runs.program, *command)
        return runs.abft(trace, expect=expect)

    assert abft("unchanged", 0)["optimizer_steps"]["parameters_checked"] == 2  # of what trains
    root = abft("changed", 1)["root_cause"]
    assert (root["name"], root["kind"], root["reason"]) == ("0.weight", "param_delta", "step-differs")
