"""Tolerances come from runs of one program that repeats itself, or not at all."""

import numpy
import pytest
from forged import change, training_run

SAME = "; expected runs of one program: the same seeds, data and software: collect it again"


def nan_in_one_place(tensors):
    def spoil(values):
        values = values.copy()
        values.flat[3] = numpy.nan
        return values

    return change(tensors, spoil, kind="output", name="layers.2.mlp")


# the run, its tensors, its seed, the error line; a pattern of numbers that rounding decides is left out by `...`
BROKEN = {
    "a perturbed run with NaN": (
        "p2",
        nan_in_one_place(training_run(2)),
        2,
        "p2: layers.2.mlp output, iteration 0, micro-batch 0 holds 1 NaN and 0 Inf, and none in the reference; "
        "expected a run of the same program",
    ),
    "a perturbed run 1.5 times the reference": (
        "p2",
        change(training_run(2), lambda values: values * 1.5, kind=("input", "output", "grad_output", "main_grad")),
        2,
        "p2: moves a typical input ... times as far as every other perturbed run" + SAME,
    ),
    "a perturbed run of which one tensor is wrong": (
        "p3",
        change(training_run(3), lambda values: values * 1.5, kind="grad_input", name="layers.3.mlp"),
        3,
        "p3: moves layers.3.mlp grad_input ... times as far as every other perturbed run" + SAME,
    ),
    "a perturbed run of another program": (
        "p1",
        training_run(1, data=1),
        1,
        "p1: moves a typical input ... times as far as every other perturbed run" + SAME,
    ),
    "a perturbed run with other weights": (
        "p1",
        training_run(1, weights=1),
        1,
        "p1: begins with other parameters than the reference: layers.0.key.bias param, iteration 0 differs by ...; "
        "expected a run of the same program: set its seeds, or collect the reference again where the program has "
        "changed since",
    ),
    "a rerun that is 30 % off": (
        "again",
        change(training_run(4), lambda values: values * 1.3, kind=("output", "grad_output", "main_grad")),
        None,
        "again: moves a typical output ... times as far as every perturbed run" + SAME,
    ),
    "a rerun with NaN": (
        "again",
        nan_in_one_place(training_run()),
        None,
        "again: layers.2.mlp output, iteration 0, micro-batch 0 holds 1 NaN and 0 Inf, and none in the reference; "
        "expected a run of the same program",
    ),
}


def fits(message, expected):
    begin, *rest = expected.split("...")
    return message.startswith(begin) and (message == expected if not rest else message.endswith(rest[0]))


@pytest.mark.parametrize("what", BROKEN)
def test_a_run_that_is_no_run_of_the_program_is_named(project, what):
    name, tensors, seed, message = BROKEN[what]
    project.record(name, tensors, seed, run_id="broken")
    refusal = project.refuses(*project.estimate_words())
    assert fits(refusal, message), refusal
    assert not (project.directory / "t.yaml").exists()


def test_a_rerun_that_rounds_otherwise_is_noted(project):
    project.record("again", training_run(4), run_id="not-reproducible")
    assert "the reference is not reproducible: " in project.estimate()


# What a program does otherwise than when its reference was kept. Each is within what a single run could be moved by, or
# shows in a factor alone.
CHANGED = {
    "a loss that is 1 % larger": (lambda values: values * 1.01, {"kind": ("grad_output", "grad_input", "main_grad")}),
    "gradients a thousandth larger": (lambda values: values * 1.001, {"kind": "main_grad"}),
    "half the learning rate": (lambda values: values * 0.5, {"kind": "param_delta"}),
    "one module's output": (lambda values: values + 0.5, {"kind": "output", "name": "layers.2.mlp"}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_runs_of_another_program_than_the_reference_give_no_tolerances(project, what):
    edit, where = CHANGED[what]
    for seed in (1, 2, 3):
        project.record(f"p{seed}", change(training_run(seed), edit, **where), seed, run_id=f"changed-{seed}")
    project.record("again", change(training_run(), edit, **where), run_id="changed-again")
    refusal = project.refuses(*project.estimate_words())
    assert refusal.startswith("again: differs from the reference, and not from the perturbed runs: "), refusal
    assert refusal.endswith("; expected a reference of the program that runs now: collect it again"), refusal
    assert not (project.directory / "t.yaml").exists()


def test_a_program_without_a_seed_for_its_weights_gets_no_tolerances(project):
    for seed in (1, 2, 3):
        project.record(f"p{seed}", training_run(seed, weights=seed), seed, run_id=f"unseeded-{seed}")
    assert project.refuses(*project.estimate_words()).startswith(
        "p1: begins with other parameters than the reference: "
    )


def test_a_program_without_a_seed_for_its_data_gets_no_tolerances(project):
    for seed in (1, 2, 3):
        project.record(f"p{seed}", training_run(seed, data=seed), seed, run_id=f"unseeded-{seed}")
    project.record("again", training_run(4, data=4), run_id="unseeded-again")
    assert project.refuses(*project.estimate_words()) == (
        "4 of 4 tolerances of input are 1 or more: pure noise, with which nothing can be checked; expected a program "
        "that repeats itself: set its seeds, feed it the same data in the same order, without dropout"
    )
