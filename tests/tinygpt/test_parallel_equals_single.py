"""The parallel program computes what the single-process program computes, up to the rounding of its dtype.

The bound is in `rounding`."""

import functools
import math

import pytest
import torch
from rounding import EPS, ROUNDINGS, assert_equal_but_for_rounding
from runs import run

LAYOUTS = {
    "TP2": {"tp": 2},
    "TP2+SP": {"tp": 2, "sp": True},
    "TP4+SP": {"tp": 4, "sp": True},
    "DP2": {"dp": 2},
    "PP2": {"pp": 2},
    "PP4 with fewer micro-batches than stages": {"pp": 4, "micro_batches": 2},
    "TP2xPP2xDP2": {"tp": 2, "pp": 2, "dp": 2},
    "TP2+SPxPP2xDP2": {"tp": 2, "sp": True, "pp": 2, "dp": 2},
    "TP2+SP, layers recomputed": {"tp": 2, "sp": True, "recompute": "non-reentrant"},
    "TP2+SPxPP2xDP2, layers recomputed": {"tp": 2, "sp": True, "pp": 2, "dp": 2, "recompute": "reentrant"},
}


@functools.cache
def reference(**changes):
    return run(**changes)


def layouts(*names):
    return pytest.mark.parametrize("layout", names or LAYOUTS)


def single_with_the_work_of(layout):
    return {"micro_batches": layout.get("micro_batches", 4)}


@layouts()
def test_loss_gradients_and_parameters_equal_the_single_process_in_fp32(layout):
    changes = LAYOUTS[layout]
    work = single_with_the_work_of(changes)
    candidate = run(**changes)
    assert_equal_but_for_rounding(candidate, reference(**work), reference(lr=0.0, **work), "fp32")
    assert candidate.replicas_that_differ == []


@layouts("TP2+SP", "DP2", "PP2", "TP2+SPxPP2xDP2, layers recomputed")
def test_loss_gradients_and_parameters_equal_the_single_process_in_bf16(layout):
    candidate = run(dtype="bf16", **LAYOUTS[layout])
    single, initial = reference(dtype="bf16"), reference(dtype="bf16", lr=0.0)
    assert_equal_but_for_rounding(candidate, single, initial, "bf16")
    assert candidate.replicas_that_differ == []


@layouts("TP2+SPxPP2xDP2")
def test_every_layout_starts_from_the_same_bits(layout):
    candidate, single = run(lr=0.0, **LAYOUTS[layout]), reference(lr=0.0)
    for name, parameter in single.parameters.items():
        assert torch.equal(candidate.parameters[name], parameter), name


def test_several_steps_of_adam_equal_the_single_process():
    # Adam's first steps have nearly the size lr whatever the gradient, so that where a gradient is noise
    # parameters differ by lr; the losses do not see it.
    changes = {"optimizer": "adam", "lr": 1e-3, "steps": 4}
    candidate, single = run(tp=2, sp=True, pp=2, **changes), run(**changes)
    assert candidate.losses == pytest.approx(single.losses, rel=ROUNDINGS * EPS["fp32"])
    assert single.losses[-1] != single.losses[0]


@pytest.mark.parametrize("recompute", ["reentrant", "non-reentrant"])
def test_recomputing_layers_changes_no_bit(recompute):
    recomputed, plain = run(recompute=recompute, dtype="bf16"), reference(dtype="bf16")
    assert recomputed.losses == plain.losses
    for name, parameter in plain.parameters.items():
        assert torch.equal(recomputed.parameters[name], parameter), name


def test_gradients_are_clipped_to_the_global_norm():
    clipped, free = reference(), run(clip_grad=0.0)
    assert free.grad_norms[0] > 0.5
    assert global_norm(clipped.main_grads) == pytest.approx(0.5, rel=1e-5)  # clipping divides by norm + 1e-6
    assert global_norm(free.main_grads) == pytest.approx(free.grad_norms[0], rel=ROUNDINGS * EPS["fp32"])


def global_norm(gradients):
    return math.sqrt(sum(grad.double().square().sum().item() for grad in gradients.values()))
