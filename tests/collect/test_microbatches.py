"""Micro-batches and recomputation, in every order that schedules have."""

import numpy
import pytest
from conftest import TTRACE, program, run
from rank_file import RankFile

pytestmark = pytest.mark.usefixtures("warm_programs")

COUNT = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """trained(recompute, order) -> the rank's file; each program runs once."""
    known = {}

    def trained(recompute, order):
        if (recompute, order) not in known:
            directory = tmp_path_factory.mktemp("trace")
            command = program("small", "--recompute", recompute, "--order", order, "--microbatches", str(COUNT))
            process = run([TTRACE, "collect", "-o", directory, "--", *command])
            assert process.returncode == 0 and len(process.stderr.splitlines()) == 1, process.stderr
            known[recompute, order] = RankFile(directory / "rank-00000.h5")
        return known[recompute, order]

    return trained


@pytest.mark.parametrize("order", ["sequential", "gpipe", "1f1b"])
@pytest.mark.parametrize("recompute", ["reentrant", "nonreentrant"])
def test_recomputed_modules_have_the_micro_batch_and_call_of_their_forward(trained, recompute, order):
    rank = trained(recompute, order)
    recomputed = {identity for identity in rank.all if identity[3] == "recompute"}
    for identity in recomputed:
        forward = (*identity[:3], "forward", *identity[4:])
        assert numpy.array_equal(rank.all[identity], rank.all[forward]), identity
    for microbatch in range(COUNT):
        names = set(rank.names("input", microbatch, "recompute"))
        assert {"blocks.0", "blocks.1", "blocks.0#1", "blocks.0.fc2", "blocks.1.fc2", "blocks.0.fc2#1"} <= names


@pytest.mark.parametrize("recompute", ["reentrant", "nonreentrant"])
def test_identities_and_values_are_those_without_recomputation(trained, recompute):
    plain, again = trained("none", "1f1b"), trained(recompute, "1f1b")
    assert set(plain.all) == {identity for identity in again.all if identity[3] == "forward"}
    for identity, values in plain.all.items():
        # A parameter that is used in two reentrantly checkpointed parts gets its gradient in two portions, which
        # changes the order of the sum.
        exact = recompute == "nonreentrant" or identity[4] in ("input", "output", "grad_output", "grad_input", "param")
        same = numpy.array_equal if exact else lambda a, b: numpy.allclose(a, b, rtol=1e-5, atol=1e-8)
        assert same(values, again.all[identity]), identity


def test_a_checkpoint_function_of_the_frameworks_own_gets_its_micro_batch_from_the_backward_in_progress(trained):
    plain, again = trained("none", "1f1b"), trained("custom", "1f1b")
    for block in ("blocks.1", "blocks.1.fc1", "blocks.1.drop", "blocks.1.fc2"):
        for microbatch in range(COUNT):
            forward = (0, microbatch, 0, "forward", "output", block)
            recompute = (0, microbatch, 0, "recompute", "output", block)
            assert numpy.array_equal(plain.all[forward], again.all[recompute])


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_gradients_belong_to_the_micro_batch_whose_forward_made_them_whatever_the_order(trained, order):
    sequential, other = trained("none", "sequential"), trained("none", order)
    assert set(sequential.all) == set(other.all)
    for identity, values in sequential.all.items():
        assert numpy.array_equal(values, other.all[identity]), identity
