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


IN_PIECES = """
import torch
from torch import nn
torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 5)
    def forward(self, x):
        return self.body(x)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for step in range(2):
    for x in torch.randn(2, 4, 3):
        hidden = model(x)
        pieces = [piece.detach().requires_grad_() for piece in hidden.chunk(2)]
        for piece in pieces:
            (model.head(piece) ** 2).sum().backward()
        hidden.backward(torch.cat([piece.grad for piece in pieces]))
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_head_that_the_program_calls_in_pieces_belongs_to_the_models_micro_batch(collect, script):
    collected = collect("--iterations", "0,1", command=script(IN_PIECES))
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    recorded = collected.rank().all
    assert {identity[:3] for identity in recorded} == {(step, mb, 0) for step in range(2) for mb in (-1, 0, 1)}
    for step in range(2):
        gradients = []
        for microbatch in range(2):

            def of(kind, name, at=(step, microbatch)):
                return recorded[(*at, 0, "forward", kind, name)]

            pieces = [of("input", "head"), of("input", "head#1")]
            assert numpy.array_equal(numpy.concatenate(pieces), of("output", "body"))
            assert of("grad_input", "head").shape == (2, 3)
            gradients.append(of("param_grad", "head.weight"))
            products = [of("grad_output", name).T @ x for name, x in zip(("head", "head#1"), pieces, strict=True)]
            assert numpy.allclose(gradients[-1], sum(products), rtol=1e-5)
        main_grad = recorded[step, -1, 0, "forward", "main_grad", "head.weight"]
        assert numpy.allclose(sum(gradients), main_grad, rtol=1e-5)
