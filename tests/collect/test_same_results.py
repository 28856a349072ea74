"""Collecting changes no bit of what is computed."""

import pytest
from conftest import program, run

pytestmark = pytest.mark.usefixtures("warm_programs")


@pytest.mark.parametrize("recompute", ["none", "reentrant", "nonreentrant", "custom"])
def test_losses_and_parameters_are_the_same_bits_with_and_without_collection(collect, recompute):
    command = program("small", "--recompute", recompute, "--order", "1f1b", "--steps", "3", "--microbatches", "3")
    collected = collect("--iterations", "0-2", command=command)
    assert collected.code == 0, collected.process.stderr
    assert collected.stdout == run(command).stdout


@pytest.mark.parametrize("recompute", ["none", "reentrant"])
def test_clipping_adamw_bf16_and_evaluation_are_left_alone(collect, recompute):
    command = program(
        "small", "--recompute", recompute, "--clip", "--optimizer", "adamw", "--bf16", "--evaluate", "--steps", "3"
    )
    collected = collect("--iterations", "0,1", command=command)
    assert collected.code == 0, collected.process.stderr
    assert collected.stdout == run(command).stdout


def test_iterations_that_are_not_recorded_are_left_alone(collect):
    command = program("small", "--steps", "3")
    collected = collect("--iterations", "1", command=command)
    assert collected.stdout == run(command).stdout
    assert {iteration for iteration, *_ in collected.rank().all} == {1}


def test_a_perturbed_run_differs_from_the_plain_one_only_by_the_perturbation(collect, script):
    # The same program with the multiplication written out would give the same; here: it differs, but little.
    command = program("small", "--steps", "1")
    plain, perturbed = run(command).stdout, collect("--perturb", "7", command=command).stdout
    assert plain != perturbed
    first, second = (float.fromhex(text.split()[1]) for text in (plain, perturbed))
    assert 0 <= abs(first - second) < 1e-5 * abs(first)
