"""What a norm does not see: a uniform factor, one wrong row and one wrong element, each below the noise of a tensor."""

import json

import numpy
import pytest

from traces import Tensor

LAYERS = 4
MICROBATCHES = 2
SHAPE = (64, 64)
ROUNDING = 1e-3  # what two correct runs differ by, relative, in every element
TARGET = "layers.2.mlp"


def run(rounding=0, spoil=None):
    """`rounding` is the seed of the run's rounding errors (0: none); `spoil` changes the output of TARGET."""
    exact, rounded = numpy.random.default_rng(1), numpy.random.default_rng((2, rounding))
    tensors = []
    for microbatch in range(MICROBATCHES):
        for i in range(LAYERS):
            values = exact.standard_normal(SHAPE)
            if rounding:
                values = values * (1 + ROUNDING * rounded.standard_normal(SHAPE))
            name = f"layers.{i}.mlp"
            if spoil and (name, microbatch) == (TARGET, 1):
                values = spoil(values)
            tensors.append(Tensor(name, values.astype("float32"), microbatch=microbatch))
    return tensors


def scaled(values):
    return values * 1.001


def wrong_row(values):
    values[17] *= 1.015
    return values


def wrong_element(values):
    values[40, 5] += 0.1
    return values


SPOILT = {
    "scale": (scaled, "all elements together are 1.00100 times the reference's; correct runs: within 0.000"),
    "row": (wrong_row, "row [17] of 64 differs by 0.0145 times"),
    "element": (wrong_element, "one of 4096 elements differs by 0.1"),
}


@pytest.fixture
def estimated(project):
    project.record("reference", run())
    for seed in (1, 2, 3):
        project.record(f"p{seed}", run(seed), seed)
    project.record("again", run())
    project.estimate()
    return project


@pytest.mark.parametrize("statistic", SPOILT)
def test_an_error_below_the_noise_of_the_norm_is_seen_and_named(estimated, statistic):
    spoil, sentence = SPOILT[statistic]
    estimated.record("candidate", run(4, spoil))
    estimated.check("-t", "t.yaml", "--json", "report.json", code=1)
    report = json.loads((estimated.directory / "report.json").read_text())
    (finding,) = report["findings"]
    assert (finding["name"], finding["microbatch"], finding["exceeded"]) == (TARGET, 1, statistic)
    assert finding["rel_err"] < finding["allowed"] < finding["ratio"] * finding["allowed"]
    assert sentence in finding["message"]


@pytest.mark.parametrize("seed", range(5, 13))
def test_other_rounding_is_the_same(estimated, seed):
    estimated.record("candidate", run(seed))
    text = estimated.check("-t", "t.yaml", "--json", "report.json", code=0)
    assert text.startswith("same")
    assert json.loads((estimated.directory / "report.json").read_text())["tests"] == 4 * LAYERS * MICROBATCHES


def test_a_statistic_is_allowed_no_more_than_its_samples_say(estimated):
    lines = (estimated.directory / "t.yaml").read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if line.startswith(f"    {TARGET}:"))
    before, row = lines[number].split("row: ")
    allowed = row.split("allowed: ")[1].split("}")[0]
    estimated.edit(f"{before}row: {row}", f"{before}row: {row.replace(allowed, '0.9', 1)}")
    refusal = estimated.refuses("check", "--reference", "reference", "--candidate", "again", "-t", "t.yaml")
    assert refusal.startswith(f"t.yaml:{number + 1}: 'allowed' of row of '{TARGET}' is 0.9; expected ")
