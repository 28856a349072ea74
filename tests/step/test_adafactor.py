"""The steps of PyTorch's Adafactor are computed again where a rank has the whole of a parameter."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACES = ["-a", ROOT / "annotations/megatron_gpt.yaml", "--axes", "dp=2"]
ADAFACTOR = "torch.optim.Adafactor"


def test_a_right_run_is_the_same_and_all_its_steps_are_proved(runs):
    reference, tolerance = runs.estimate("adafactor")
    candidate = runs.collect("none", 2, "--dp", 2, optimizer="adafactor")
    steps = runs.check(candidate, reference, "-t", tolerance, *PLACES, expect=0)["optimizer_steps"]
    assert (steps["optimizers"], steps["updates_checked"]) == ([ADAFACTOR], steps["updates"])
    assert 0 < steps["worst"] <= 1


@pytest.mark.parametrize(
    ("fault", "name", "words"),
    [
        ("lr-slightly", "embedding.word_embeddings.weight", "not what its gradient, options and state give"),
        ("half-not-updated", "embedding.word_embeddings.weight", "what it was before the step"),
    ],
)
def test_a_wrong_step_is_named_where_it_happens(runs, fault, name, words):
    reference, tolerance = runs.estimate("adafactor")
    root = runs.check(runs.collect(fault, optimizer="adafactor"), reference, "-t", tolerance, expect=1)["root_cause"]
    found = root["name"], root["kind"], root["reason"], root["iteration"]
    assert found == (name, "param_delta", "step-differs", 0), root["message"]
    assert words in root["message"]


def test_the_step_of_a_shard_is_not_checked_and_says_why(runs):
    trace = runs.collect("none", 2, "--tp", 2, optimizer="adafactor")
    report = runs.abft(trace, "-a", PLACES[1], "--axes", "tp=2", expect=0)
    steps = report["optimizer_steps"]
    part = "its rank has a part of it, and the rule of its optimizer follows from the whole"
    assert steps["not_checkable"].keys() == {part}
    assert 0 < steps["updates_checked"] == steps["updates"] - steps["not_checkable"][part]
