"""The optimizer divided over the data parallel ranks."""

import functools

import pytest
import torch
from rounding import EPS, ROUNDINGS, assert_equal_but_for_rounding
from runs import SMALL, run

from tinygpt.parallel.zero import ZeroOptimizer

TWO_STEPS_OF_ADAM = {"optimizer": "adam", "lr": 1e-3, "steps": 2}

# Of two terms the sum has the same bits in either order: with two data parallel ranks ZeRO 1 changes no bit.
ZERO_1 = {
    "DP2": {"dp": 2},
    "DP2, bf16": {"dp": 2, "dtype": "bf16"},
    "DP2xTP2": {"dp": 2, "tp": 2, "sp": True},
    "DP2xPP2, tied": {"dp": 2, "pp": 2, "tied": True},
    "DP2xPP2, tied, two chunks": {"dp": 2, "pp": 2, "vpp": 2, "tied": True},
}


@functools.cache
def reference(**changes):
    return run(**changes)


@pytest.mark.parametrize("name", ZERO_1)
def test_zero_1_computes_the_bits_of_the_whole_optimizer(name):
    layout = ZERO_1[name] | TWO_STEPS_OF_ADAM
    divided, whole = run(zero=1, **layout), run(**layout)
    assert divided.losses == whole.losses
    assert divided.grad_norms == whole.grad_norms
    assert divided.replicas_that_differ == []
    for what in ("parameters", "rounded", "main_grads"):
        for parameter, value in getattr(whole, what).items():
            assert torch.equal(getattr(divided, what)[parameter], value), (what, parameter)


@pytest.mark.parametrize(
    "layout",
    [
        {"zero": 1, "dp": 2, "tp": 2},
        {"zero": 1, "dp": 3, "micro_batches": 6},
        {"zero": 2, "dp": 2},
        {"zero": 2, "dp": 2, "tp": 2, "sp": True},
        {"zero": 2, "dp": 2, "pp": 2, "vpp": 2},
    ],
    ids=str,
)
def test_a_divided_optimizer_equals_the_single_process(layout):
    work = {"micro_batches": layout.get("micro_batches", 4)}
    candidate = run(**layout)
    assert_equal_but_for_rounding(candidate, reference(**work), reference(lr=0.0, **work))
    assert candidate.replicas_that_differ == []
    for name, master in candidate.parameters.items():
        assert torch.equal(candidate.rounded[name], master), name


@pytest.mark.parametrize(
    "layout", [{"zero": 1, "dp": 2}, {"zero": 2, "dp": 2}, {"zero": 1, "dp": 2, "pp": 2, "tied": True}], ids=str
)
def test_two_steps_of_adam_equal_the_single_process(layout):
    tied = {"tied": layout.get("tied", False)}
    candidate, single = run(**layout, **TWO_STEPS_OF_ADAM), reference(**tied, **TWO_STEPS_OF_ADAM)
    first = reference(**tied, **TWO_STEPS_OF_ADAM | {"steps": 1})
    certain = {name: is_certain(grad) & is_certain(single.main_grads[name]) for name, grad in first.main_grads.items()}
    # Of queries and keys little is certain at the start.
    assert torch.cat([where.flatten() for where in certain.values()]).double().mean() > 0.5
    for name, parameter in single.parameters.items():
        assert certain[name].any(), name
        # An element moves by about lr a step.
        off = (candidate.parameters[name] - parameter)[certain[name]].abs().max()
        assert off <= 0.05 * TWO_STEPS_OF_ADAM["lr"], name


def is_certain(grad):
    """Where rounding moves the gradient by less than 1 %, and where it is exactly zero: of tokens that do not occur.
    Adam's step depends on ratios of gradients alone: where a gradient is all rounding, so is the step."""
    return (grad == 0) | (grad.abs() > 100 * ROUNDINGS * EPS["fp32"] * grad.norm())


def test_copies_of_a_tied_weight_drift_apart_if_their_gradients_are_summed_after_zero_has_reduced_them():
    layout = {"zero": 1, "dp": 2, "pp": 2, "tied": True}
    wrong = run(bug="zero-tied-embedding", **layout, **TWO_STEPS_OF_ADAM)
    copies = "embedding.word_embeddings.weight {} on stage 1"
    assert {copies.format(what) for what in ("master", "parameter", "main_grad")} == set(wrong.replicas_that_differ)


class SecondOfTwo:
    """A data parallel axis whose other rank has gradients of zero."""

    rank, size = 1, 2

    def sum(self, tensor):
        return tensor


def test_after_the_reduction_a_rank_has_the_gradient_of_what_it_owns_alone():
    parameters = [torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2, 2))]
    optimizer = ZeroOptimizer(parameters, SMALL, SecondOfTwo())
    optimizer.zero_grad()
    (parameters[0].sum() + (parameters[1] * torch.tensor([[2.0, 4.0], [6.0, 8.0]])).sum()).backward()
    whole = parameters[0].main_grad, parameters[1].main_grad
    assert whole[1].tolist() == [[2, 4], [6, 8]]
    optimizer.sum_gradients()
    optimizer.drop_foreign_gradients()
    # Seven elements and one of padding: this rank owns the last three of the second parameter.
    assert [p.main_shard_range for p in parameters] == [(3, 3), (1, 4)]
    assert [p.main_grad.tolist() for p in parameters] == [[], [4, 6, 8]]
    assert [p.main_param.tolist() for p in parameters] == [[], [1, 1, 1]]
    # The buffer keeps beside it what the rank accumulated of the others' parts, until it is zeroed.
    assert whole[0].tolist() == [1, 1, 1] and whole[1].tolist() == [[2, 4], [6, 8]]
    optimizer.zero_grad()
    assert not optimizer.gradients.any()
