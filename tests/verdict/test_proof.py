"""What proves nothing is not the same: tensors of zeros, of NaN, and of noise."""

import json
from xml.etree import ElementTree

import numpy
import pytest
from forged import KEY_BIAS, change, training_run

GRADIENTS = ("grad_output", "grad_input", "param_grad", "main_grad")


def fill(value):
    return lambda values: numpy.full_like(values, value)


# what both runs hold, and what the verdict says
NOTHING_PROVED = {
    "NaN everywhere": (
        lambda tensors: change(tensors, fill(numpy.nan)),
        "the loss is not finite on either side, so that nothing is proved: loss scalar, iteration 0, micro-batch 0; "
        "mend the NaN or Inf that both runs hold",
    ),
    "zero everywhere": (
        lambda tensors: change(tensors, fill(0)),
        "too little is proved, of input 0 of 8 (8 all-zero), of output 0 of 8 (8 all-zero), of grad_output 0 of 8 (8 "
        "all-zero), of grad_input 0 of 8 (8 all-zero), of param 0 of 5 (5 all-zero), of param_grad 0 of 8 (8 "
        "all-zero), of main_grad 0 of 5 (5 all-zero), of param_delta 0 of 5 (5 all-zero), of param_after 0 of 5 (5 "
        "all-zero), of scalar 0 of 3 (3 all-zero); expected half of each kind: record an iteration in which they are "
        "not zero (--iterations), or mend what makes them so in both runs",
    ),
    "gradients of zero": (
        lambda tensors: change(tensors, fill(0), kind=GRADIENTS),
        "too little is proved, of grad_output 0 of 8 (8 all-zero), of grad_input 0 of 8 (8 all-zero), of param_grad 0 "
        "of 8 (8 all-zero), of main_grad 0 of 5 (5 all-zero); expected half of each kind: record an iteration in which "
        "they are not zero (--iterations), or mend what makes them so in both runs",
    ),
    "a loss of Inf": (
        lambda tensors: change(tensors, fill(numpy.inf), name="loss"),
        "the loss is not finite on either side, so that nothing is proved: loss scalar, iteration 0, micro-batch 0; "
        "mend the NaN or Inf that both runs hold",
    ),
    "gradients of mostly NaN": (
        lambda tensors: change(
            tensors,
            lambda values: numpy.where(numpy.arange(values.size).reshape(values.shape) < 3, 1, numpy.nan),
            GRADIENTS,
        ),
        "too little is proved, of grad_output 0 of 8 (8 empty), of grad_input 0 of 8 (8 empty), of param_grad 0 of 8 "
        "(8 empty), of main_grad 0 of 5 (5 empty); expected half of each kind: mend the NaN or Inf that both runs hold",
    ),
}


@pytest.mark.parametrize("what", NOTHING_PROVED)
def test_equal_runs_of_nothing_are_not_the_same(project, what):
    edit, sentence = NOTHING_PROVED[what]
    project.record("reference", edit(training_run()), run_id="spoilt")
    project.record("candidate", edit(training_run()))
    assert project.check(code=2).splitlines()[0] == f"could-not-look: {sentence}"


def test_equal_runs_are_the_same(project):
    project.record("candidate", training_run())
    assert (
        project.check(code=0)
        == "same\nproof: 63 of 63 floating-point tensors\n63 compared: 63 pass, 0 fail, 0 untrusted; 0 missing\n"
    )


def test_a_run_that_rounds_otherwise_is_the_same(estimated):
    estimated.record("candidate", training_run(rounding=9))
    lines = estimated.check("-t", "t.yaml", code=0).splitlines()
    assert lines[0] == "same"
    assert lines[-2:] == [
        "proof: 61 of 63 floating-point tensors (main_grad 4 of 5, param_delta 4 of 5)",
        "63 compared: 61 pass, 0 fail, 2 untrusted; 0 missing",
    ]


def test_a_loss_of_inf_is_no_proof_with_tolerances_either(project):
    for name, rounding in {"reference": 0, "again": 0, "p1": 1, "p2": 2, "p3": 3, "candidate": 9}.items():
        project.record(
            name, change(training_run(rounding), fill(numpy.inf), name="loss"), rounding if name[0] == "p" else None
        )
    project.estimate()
    assert project.check("-t", "t.yaml", code=2).startswith("could-not-look: the loss is not finite on either side")


def test_half_of_the_zeros_of_a_kind_is_little_enough(project):
    names = [f"layers.{i}.mlp.weight" for i in range(4)]
    for count, code in {2: 0, 3: 2}.items():  # of five
        spoilt = training_run()
        for name in names[:count]:
            spoilt = change(spoilt, fill(0), kind="main_grad", name=name)
        project.record("reference", spoilt, run_id=f"reference-{count}")
        project.record("candidate", spoilt, run_id=f"candidate-{count}")
        report = project.check(code=code)
        assert f"main_grad {5 - count} of 5" in report


def test_initial_parameters_may_be_zero_but_not_all_of_them(project):
    spoilt = training_run()
    for i in range(4):
        spoilt = change(spoilt, fill(0), kind="param", name=f"layers.{i}.mlp.weight")
    project.record("reference", spoilt, run_id="reference-zero")
    project.record("candidate", spoilt)
    assert project.check(code=0).startswith("same\n")
    assert "of param 0 of 4 (4 all-zero)" in project.check("--only", "layers.*.mlp.weight", code=2)


def test_a_run_that_differs_is_different_though_little_is_proved(project):
    project.record("reference", change(training_run(), fill(0), kind=GRADIENTS), run_id="spoilt")
    project.record("candidate", change(training_run(), fill(0), kind=GRADIENTS[1:]))
    assert project.check("--all", code=1).startswith("different\n")


def test_integers_alone_prove_nothing(project):
    tokens = [tensor.with_values(tensor.values.astype("int64")) for tensor in training_run() if tensor.kind == "output"]
    project.record("reference", tokens, run_id="tokens")
    project.record("candidate", tokens)
    assert project.check(code=2).startswith(
        "could-not-look: no floating-point tensor was compared, so that nothing is proved\n"
    )


def test_other_reports_say_what_is_proved(project):
    spoilt = change(training_run(), fill(0), kind="main_grad")
    project.record("reference", spoilt, run_id="spoilt")
    project.record("candidate", spoilt)
    report = json.loads(project.check("--json", "-", code=2))
    assert (report["schema"], report["verdict"]) == ("ttrace-report/5", "could-not-look")
    assert report["proof"]["main_grad"] == {"compared": 5, "proved": 0, "others": {"all-zero": 5}, "enough": False}
    assert report["proof"]["output"] == {"compared": 8, "proved": 8, "others": {}, "enough": True}
    junit = ElementTree.fromstring(project.check("--junit", "-", code=2))
    (proof,) = junit.iterfind(".//property[@name='proof']")
    assert proof.attrib == {"name": "proof", "value": "58 of 63 floating-point tensors (main_grad 0 of 5)"}
    assert "too little is proved" in junit.find(".//failure").get("message")


@pytest.mark.parametrize("factor", [1e6, 1e30, 0])
def test_noise_is_of_the_size_of_noise(estimated, factor):
    candidate = change(training_run(9), lambda values: values * numpy.float32(factor), kind="main_grad", name=KEY_BIAS)
    estimated.record("candidate", candidate)
    report = estimated.check("-t", "t.yaml", code=1)
    assert f"first wrong tensor: {KEY_BIAS} main_grad, iteration 0\n" in report


@pytest.mark.parametrize("factor", [-1, 0.5, 2])
def test_noise_that_is_another_is_not_wrong(estimated, factor):
    candidate = change(training_run(9), lambda values: values * numpy.float32(factor), kind="main_grad", name=KEY_BIAS)
    estimated.record("candidate", candidate)
    assert estimated.check("-t", "t.yaml", code=0).startswith("same\n")
