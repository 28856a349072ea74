"""Modules that one program calls and the other does not have: missing, unless they can hide nothing."""

import json

import numpy
import pytest

from traces import Tensor, record_run


def numbers(seed):
    return numpy.random.default_rng(seed).standard_normal((2, 3)).astype("float32")


def passing(module, given, made=None, grad_input=None):
    """A module of two micro-batches that returns what it is given, or `made` in the second."""
    tensors = []
    for m in range(2):
        gradient = given + 1
        tensors.append(Tensor(module, given, "input", microbatch=m))
        tensors.append(Tensor(module, given if made is None or m == 0 else made, microbatch=m))
        tensors.append(Tensor(module, gradient, "grad_output", microbatch=m))
        tensors.append(Tensor(module, gradient if grad_input is None else grad_input, "grad_input", microbatch=m))
    return tensors


def model(*more):
    linear = [Tensor("linear", numbers(seed=m), microbatch=m) for m in range(2)]
    weight = Tensor("linear.weight", numbers(seed=5), "param", microbatch=-1)
    return [weight, *linear, *(tensor for tensors in more for tensor in tensors)]


@pytest.fixture
def check(ttrace, tmp_path):
    def run(side, with_module, without, expect):
        """`side` has the module."""
        other = {"reference": "candidate", "candidate": "reference"}[side]
        record_run(tmp_path / side, [with_module])
        record_run(tmp_path / other, [without])
        words = ("check", "--reference", "reference", "--candidate", "candidate", "--json", "-")
        return json.loads(ttrace.reports(*words, code=expect))

    return run


@pytest.mark.parametrize(("side", "lacking"), [("reference", "candidate"), ("candidate", "reference")])
def test_a_module_that_does_nothing_is_not_missing_on_the_other_side(check, side, lacking):
    norms = [passing(f"layers.{layer}.norm", numbers(seed=layer)) for layer in range(2)]
    report = check(side, model(*norms), model(), expect=0)
    assert report["verdict"] == "same"
    assert (report["counts"]["missing"], report["waived"]) == (0, 16)
    assert report["notes"] == [
        f"waived: 16 tensors of modules that the {lacking} does not call, and that return what they are given, bit for "
        "bit: layers.#.norm"
    ]


def with_first(value):
    values = numbers(seed=1)
    values[0, 0] = value
    return values


GIVEN = with_first(0.0)
COMPUTES = {
    "another output in one micro-batch": passing("norm", GIVEN, made=GIVEN * 2),
    "another sign of zero": passing("norm", GIVEN, made=with_first(-0.0)),
    "another gradient": passing("norm", GIVEN, grad_input=GIVEN),
    "nothing but zeros": [tensor.with_values(tensor.values * 0) for tensor in passing("norm", GIVEN)],
    "no output": [tensor for tensor in passing("norm", GIVEN) if tensor.kind != "output"],
    "an output in one micro-batch only": [
        tensor for tensor in passing("norm", GIVEN) if (tensor.kind, tensor.microbatch) != ("output", 1)
    ],
    "a parameter": [*passing("norm", GIVEN), Tensor("norm.weight", GIVEN, "param", microbatch=-1)],
    "a module inside": [*passing("norm", GIVEN), Tensor("norm.scale", GIVEN)],
    "a second input": [*passing("norm:0", GIVEN), Tensor("norm:1", GIVEN, "input")],
    "a wider output": [
        tensor.with_values(tensor.values.reshape(3, 2)) if tensor.kind == "output" else tensor
        for tensor in passing("norm", GIVEN)
    ],
}


@pytest.mark.parametrize("what", COMPUTES)
def test_a_module_of_the_reference_that_does_something_stays_missing(check, what):
    report = check("reference", model(COMPUTES[what]), model(), expect=1)
    assert report["counts"]["missing"] == len(COMPUTES[what])


def test_a_module_that_the_candidate_adds_is_waived_and_named(check):
    added = passing("layers.0.gather#1", numbers(seed=3), made=numbers(seed=4))
    report = check("candidate", model(added), model(), expect=0)
    assert (report["counts"]["compared"], report["counts"]["missing"], report["waived"]) == (3, 0, len(added))
    assert report["notes"] == [
        "waived: 8 tensors of modules that the reference does not have, and that have no parameters; what they do "
        "shows in the modules after them: layers.#.gather"
    ]


def test_what_a_module_that_the_candidate_adds_does_wrong_is_found_behind_it(check):
    added = passing("layers.0.gather", numbers(seed=3), made=numbers(seed=4))
    wrong = [tensor.with_values(tensor.values * 2) if tensor.name == "linear" else tensor for tensor in model(added)]
    report = check("candidate", wrong, model(), expect=1)
    assert (report["counts"]["fail"], report["waived"]) == (2, len(added))
    assert report["root_cause"]["name"] == "linear"


ADDED = {
    "a parameter": COMPUTES["a parameter"],
    "a parameter inside": [*passing("norm", GIVEN, made=GIVEN * 2), Tensor("norm.0.w", GIVEN, "param", microbatch=-1)],
    "the model itself": passing("(model)", GIVEN, made=GIVEN * 2),
    "a loss": [Tensor("loss", GIVEN[0, 0], "scalar", microbatch=0)],
}


@pytest.mark.parametrize("what", ADDED)
def test_what_the_candidate_adds_to_the_model_stays_missing(check, what):
    report = check("candidate", model(ADDED[what]), model(), expect=1)
    assert report["counts"]["missing"] == len(ADDED[what])


@pytest.mark.parametrize("what", ["a second call", "a second micro-batch", "unused there"])
def test_more_calls_of_a_module_that_the_reference_has_stay_missing(check, what):
    first = passing("norm", GIVEN, made=GIVEN * 2)
    more = {
        "a second call": (first, [*first, *passing("norm#1", GIVEN)]),
        "a second micro-batch": (first[:4], first),
        "unused there": ([Tensor("norm.weight", GIVEN, "param", microbatch=-1)],) * 2,
    }
    before, after = more[what]
    if what == "unused there":
        after = [*after, *first]
    report = check("candidate", model(after), model(before), expect=1)
    assert report["counts"]["missing"] == len(after) - len(before)


def test_a_module_that_the_other_side_calls_less_often_stays_missing(check):
    calls = passing("norm", GIVEN)
    report = check("reference", model(calls), model(calls[:4]), expect=1)
    assert report["counts"]["missing"] == 4


def parts(value=1.0):
    """A module that calls two others inside of it, with a parameter each."""
    first = passing("head.norm", GIVEN, made=GIVEN * 2)
    second = [
        tensor.with_values(tensor.values * value) if tensor.kind == "output" else tensor
        for tensor in passing("head.fc", GIVEN * 2, made=GIVEN * 3)
    ]
    return [*first, *second, *(Tensor(f"head.{part}.weight", GIVEN, "param", microbatch=-1) for part in ("norm", "fc"))]


def whole(value=1.0):
    """What that module is given and makes itself."""
    outer = [Tensor("head", GIVEN, "input", microbatch=m) for m in range(2)]
    outer += [Tensor("head", made * value, microbatch=m) for m, made in enumerate((GIVEN * 2, GIVEN * 3))]
    return outer


@pytest.mark.parametrize(("side", "lacking"), [("reference", "candidate"), ("candidate", "reference")])
def test_a_module_of_which_one_side_calls_the_parts_alone_is_waived_and_named(check, side, lacking):
    report = check(side, model(parts(), whole()), model(parts()), expect=0)
    assert (report["counts"]["missing"], report["waived"]) == (0, 4)
    (note,) = report["notes"]
    assert f"of modules that the {lacking} does not call, but what is inside them" in note and "head" in note


def test_a_module_that_makes_more_of_its_parts_than_the_candidate_that_calls_these_stays_missing(check):
    report = check("reference", model(parts(), whole(2.0)), model(parts()), expect=1)
    assert report["counts"]["missing"] == 4


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_what_is_wrong_in_a_part_is_found_there(check, side):
    report = check(side, model(parts(), whole()), model(parts(1.5)), expect=1)
    assert (report["root_cause"]["name"], report["counts"]["missing"]) == ("head.fc", 0)
