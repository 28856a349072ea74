"""Faults in an optimizer's step are found in the iteration where they happen, and named as the step's."""

import pathlib

import pytest

from sweeps import warm

ROOT = pathlib.Path(__file__).resolve().parents[2]

# fault -> kind and reason of what is first wrong, its iteration, words of the message
FAULTS = {
    "lr-slightly": ("param_delta", "step-differs", 0, "the update is 1.0001 times what lr 0.001 gives"),
    "weight-decay": ("param_delta", "step-differs", 0, "what decoupled weight decay 0.01 gives; its option is 0"),
    "vector-not-updated": ("param_delta", "step-differs", 0, "every element not updated, on rank 0"),
    "no-clipping": ("param_delta", "options-differ", 0, "gradients clipped by 1, reference 0."),
    "bias-left-out": ("param_delta", "options-differ", 0, "in no optimizer, reference optimizer torch.optim.adam.Adam"),
    "bfloat16-masters": ("param_delta", "options-differ", 0, "updates a value in bfloat16, reference float32"),
    "twice": ("param_delta", "options-differ", 0, "stepped 2 times in the iteration, reference 1"),
    # The norm's weights are 1, and one step of 0.001 does not show in bf16.
    "vector-not-copied": ("param_after", "copy-differs", 1, "not brought up to date after the step"),
    "truncated-copies": ("param_after", "copy-differs", 0, "not what the step made, rounded"),
}


def test_a_right_run_is_the_same_and_its_steps_are_proved(runs):
    report = runs.check(runs.collect("none", 1, "--micro-batch-size", "2"), runs.collect("none"), expect=0)
    steps = report["optimizer_steps"]
    assert steps["parameters_checked"] == steps["parameters"] > 10
    assert steps["copies_checked"] == steps["updates_checked"] == steps["updates"] == 2 * steps["parameters"]
    assert steps["iterations"] == [0, 1]
    assert steps["optimizers"] == ["torch.optim.adam.Adam"]
    assert 0.1 < steps["worst"] <= 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_as_the_steps_where_it_happens(runs, fault):
    kind, reason, iteration, words = FAULTS[fault]
    report = runs.check(runs.collect(fault), runs.collect("none"), expect=1)
    root = report["root_cause"]
    assert (root["kind"], root["reason"], root["iteration"]) == (kind, reason, iteration), root["message"]
    assert words in root["message"]
    assert root["diagnosis"] == "optimizer-step"
    # Nothing else is to blame, in the next iteration neither.
    assert {each["diagnosis"] for each in report["roots"]} == {"optimizer-step"}


def test_a_step_is_checked_without_a_reference(runs):
    report = runs.abft(runs.collect("beta2"), expect=1)
    assert (report["root_cause"]["reason"], report["root_cause"]["iteration"]) == ("step-differs", 1)
    assert runs.abft(runs.collect("none"), expect=0)["optimizer_steps"]["worst"] <= 1


def test_a_slice_on_one_rank_is_named_without_a_reference(runs):
    trace = runs.collect("one-rank-not-updated", 2, "--tp", "2")
    report = runs.abft(trace, "-a", ROOT / "annotations/megatron_gpt.yaml", "--axes", "tp=2", expect=1)
    wrong = [each for each in report["findings"] if each["verdict"] == "fail"]
    assert {each["reason"] for each in wrong} == {"step-differs"}
    assert "in rows 64-127 not updated, on rank 1 (tp=1)" in wrong[0]["message"]
    assert report["optimizer_steps"]["parameters_checked"] == report["optimizer_steps"]["parameters"]


LARGE_STEPS = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(64, 64).double()
with torch.no_grad():
    model.weight.mul_(1e-3)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 64).double()).square().sum().backward()
    optimizer.step()
    if sys.argv[1] == "moved":
        with torch.no_grad():
            model.weight[3, 5] *= 1 + 1e-6
"""


def test_updates_in_fp64_as_large_as_their_parameters_are_right_and_a_moved_element_is_not(runs, tmp_path):
    program = tmp_path / "large_steps.py"
    program.write_text(LARGE_STEPS)

    def abft(word, expect):
        trace = tmp_path / word
        runs.run(0, runs.program, "collect", "-o", trace, "--iterations", "0-2", "--", *warm.command(program, word))
        return runs.abft(trace, expect=expect)

    assert abft("right", 0)["optimizer_steps"]["copies_checked"] > 0
    root = abft("moved", 1)["root_cause"]
    assert (root["name"], root["kind"], root["reason"]) == ("weight", "param_delta", "step-differs")
