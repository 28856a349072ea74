"""`-t default`: a closed form in place of measured tolerances, and every report says that it was not measured."""

import dataclasses
import json
import xml.etree.ElementTree as xml

import forged
import numpy
import pytest
from conftest import CHECK
from forged import KEY_BIAS, MICROBATCHES, change, training_run

from traces import Tensor

DEFAULT = ("-t", "default")
RESERVED = ", within tolerances that were not measured"


@pytest.fixture(autouse=True)
def rounding_of_one_result(monkeypatch):
    monkeypatch.setattr(forged, "ROUNDING", 4e-8)


def run(rounding=0):
    """With what the gradient of the key's bias is the sum of."""
    results = numpy.random.default_rng(5).standard_normal((4, 8)).astype("float32")
    keys = [
        Tensor("layers.0.key", results, kind=kind, microbatch=microbatch)
        for kind in ("output", "grad_output")
        for microbatch in range(MICROBATCHES)
    ]
    return training_run(rounding) + keys


@pytest.fixture
def same(project):
    """A correct candidate that rounds otherwise."""
    project.record("reference", run())
    project.record("candidate", run(9))
    return project


def test_rounding_is_the_same_and_the_verdict_says_that_nobody_measured_it(same):
    report = same.check(*DEFAULT, code=0)
    assert report.startswith(f"same{RESERVED}\n")
    assert "the tolerances are the default and were not measured" in " ".join(report.split())
    assert ", by what was not measured 67 compared" in " ".join(report.split())
    assert same.check(*DEFAULT, "-q", code=0) == f"same{RESERVED}\n"


def test_every_report_says_it(same):
    same.check(*DEFAULT, "--json", "r.json", "--junit", "r.xml", "--html", "r.html", code=0)
    found = json.loads((same.directory / "r.json").read_text())
    assert found["verdict"] == "same"
    assert found["unmeasured"].startswith("the tolerances are the default and were not measured")
    properties = {one.get("name"): one.get("value") for one in xml.parse(same.directory / "r.xml").iter("property")}
    assert properties["unmeasured"] == found["unmeasured"]
    assert f"same{RESERVED}" in (same.directory / "r.html").read_text()


def test_a_measured_tolerance_says_nothing_of_it(estimated):
    estimated.record("candidate", training_run(9))
    assert estimated.check("-t", "t.yaml", code=0).startswith("same\n")
    assert "unmeasured" not in json.loads(estimated.check("-t", "t.yaml", "--json", "-", code=0))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("layers.0.mlp", "output"),
        ("layers.3.mlp", "grad_output"),
        ("layers.1.mlp.weight", "main_grad"),
        ("layers.1.mlp.weight", "param_grad"),
        ("loss", "scalar"),
    ],
)
def test_what_is_off_by_a_hundred_roundings_is_different(same, name, kind):
    same.record("candidate", change(run(9), lambda values: values * (1 + 1e-5), kind, name))
    report = same.check(*DEFAULT, code=1)
    assert report.startswith("different\n")
    assert f"\nfirst wrong tensor: {name} {kind}, iteration 0" in report


def test_a_gradient_that_cancels_is_noise_and_one_that_does_not_is_wrong(same):
    findings = json.loads(same.check(*DEFAULT, "--json", "-", code=0))["findings"]
    of_bias = {(finding["kind"], finding["reason"]) for finding in findings if finding["name"] == KEY_BIAS}
    assert ("main_grad", "noise") in of_bias
    # The same values, if the terms that they are the sum of are as small.
    tensors = [
        tensor.with_values(tensor.values * numpy.float32(1e-7)) if tensor.name == "layers.0.key" else tensor
        for tensor in run()
    ]
    same.record("reference", tensors)
    assert f"{KEY_BIAS} main_grad" in same.check(*DEFAULT, "--all", code=1)


def test_an_update_that_is_the_references_no_more_is_not_proved(same):
    same.record("candidate", change(run(9), lambda values: 0 * values, "param_delta", "layers.1.mlp.weight"))
    assert "layers.1.mlp.weight param_delta" in same.check(*DEFAULT, code=1)


def test_a_second_iteration_follows_from_a_step_that_nobody_foresees(same):
    later = [dataclasses.replace(tensor, iteration=1) for tensor in run()]
    same.record("reference", run() + later)
    same.record("candidate", run(9) + later)
    assert same.refuses(*CHECK, *DEFAULT).startswith("-t default: the reference holds the iterations 0 to 1, and ")


def test_strict_wants_what_was_measured(same):
    assert same.refuses(*CHECK, *DEFAULT, "--strict") == (
        "--strict: the default tolerances (-t default) were not measured; expected a file of measured ones"
    )


def test_a_file_of_that_name_goes_by_its_path(estimated):
    (estimated.directory / "t.yaml").rename(estimated.directory / "default")
    estimated.record("candidate", training_run(9))
    assert estimated.check("-t", "./default", code=0).startswith("same\n")
    assert not estimated.check("-t", "default", code=1).startswith("same")  # of the key's bias it knows no terms
