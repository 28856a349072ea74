"""The steps of optimizers whose rule is not known are judged by regression on the reference's."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = ["-a", ROOT / "annotations/megatron_gpt.yaml", "--axes", "dp=2"]
MUON, ADAMW = "torch.optim.Muon", "torch.optim.adamw.AdamW"


@pytest.fixture(scope="module")
def check(runs):
    """Checks a run with this optimizer. "muon" is Muon, which has the matrices, and AdamW, which has the vectors."""

    def check(optimizer, fault, ranks=1, *, expect):
        reference, tolerance = runs.estimate(optimizer)
        candidate = runs.collect(fault, ranks, "--dp", ranks, optimizer=optimizer)
        return runs.check(candidate, reference, "-t", tolerance, *(PLACES if ranks > 1 else []), expect=expect)

    return check


def test_a_right_run_is_the_same_and_its_steps_are_judged(check):
    steps = check("muon", "none", 2, expect=0)["optimizer_steps"]
    assert steps["regressed_optimizers"] == [MUON]
    assert steps["optimizers"] == [ADAMW]
    assert steps["updates_regressed"] + steps["updates_checked"] == steps["updates"]
    assert 0 < steps["worst_regressed"] < 1
    assert steps["copies_checked"] == steps["updates"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("lr", "the update is 1.0100 times the reference's over "),
        ("weight-decay", "weight decay that is 0.1 larger gives at lr 0.0001"),
        ("half-not-updated", "elements that the reference updates are not updated"),
    ],
)
def test_a_fault_is_named_as_the_steps_where_it_happens(check, fault, words):
    report = check("lion", fault, expect=1)
    root = report["root_cause"]
    assert (root["kind"], root["reason"], root["iteration"]) == ("param_delta", "step-differs", 0), root["message"]
    assert {each["diagnosis"] for each in report["roots"]} == {"optimizer-step"}
    named = [each["message"] for each in report["findings"] if words in each["message"]]
    assert named, [each["message"] for each in report["findings"]][:5]
