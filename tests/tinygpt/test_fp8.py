"""FP8 linears: one process and many round the same numbers with the same scales."""

import functools

import pytest
import torch
from runs import run

from tinygpt.fp8 import HISTORY, Scaling

# Scales other than the first ones are used from the second step on.
TWO_STEPS = {"fp8": True, "steps": 2, "clip_grad": 0.0, "lr": 0.1}
LAYOUTS = {
    "TP2+SPxCP2": {"tp": 2, "sp": True, "cp": 2},
    "PP2xDP2, layers recomputed": {"pp": 2, "dp": 2, "recompute": "reentrant"},
    "TP2": {"tp": 2},
    "llama, TP2+SP": {"tp": 2, "sp": True, "arch": "llama"},
}


@functools.cache
def single(arch="gpt", fp8=True):
    return run(**TWO_STEPS | {"arch": arch, "fp8": fp8})


def distance(run, other):
    """The largest relative distance of a gradient; the exact gradient of a key's bias is 0."""
    return max(
        ((run.main_grads[name] - grad).norm() / grad.norm()).item()
        for name, grad in other.main_grads.items()
        if not name.endswith("linear_qkv.bias")
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_equal_the_single_process_but_for_codes_that_rounding_flips(name):
    layout = LAYOUTS[name]
    reference = single(layout.get("arch", "gpt"))
    candidate = run(**TWO_STEPS | layout)
    # Of all elements only those flip that lie within fp32's rounding of the middle between two codes.
    assert distance(candidate, reference) < 0.1 * distance(reference, single(layout.get("arch", "gpt"), fp8=False))
    assert candidate.losses == pytest.approx(reference.losses, rel=1e-5)
    assert candidate.replicas_that_differ == []


def test_all_ranks_that_have_a_part_of_a_tensor_use_one_scale():
    right = run(**TWO_STEPS, tp=2, sp=True, dp=2)
    first, *others = right.scales
    assert all(other == first for other in others)
    for name, scales in single().scales[0].items():
        # Each rank divided its losses by half as many micro-batches, which doubles the gradients.
        halved = [scales[0], scales[1], scales[2] / 2]
        assert first[name] == pytest.approx(halved, rel=0.01), name
        assert all(scale not in (1, 2**16) for scale in scales), name
    wrong = run(**TWO_STEPS, tp=2, sp=True, dp=2, bug="fp8-amax-group")
    assert wrong.scales[0] == wrong.scales[2] and wrong.scales[1] == wrong.scales[3] != wrong.scales[0]


def test_a_scale_makes_the_largest_of_the_last_steps_the_largest_code():
    scaling = Scaling(torch.float8_e4m3fn)
    scaling.quantise(torch.tensor([1.0, -7.0]))
    scaling.quantise(torch.tensor([2.0]))
    scaling.finish_step()
    assert scaling.scale == 64  # 448 / 7
    assert scaling.quantise(torch.tensor([-7.0, 14.0])).tolist() == [-448, 448]
    for _ in range(HISTORY):
        assert scaling.scale <= 64
        scaling.amax = torch.tensor(3.5)
        scaling.finish_step()
    assert scaling.scale == 128


@pytest.mark.parametrize("amax", [0.0, torch.inf, torch.nan])
def test_a_scale_stays_where_no_magnitude_was_seen(amax):
    scaling = Scaling(torch.float8_e5m2)
    before = scaling.scale
    scaling.amax = torch.tensor(amax)
    scaling.finish_step()
    assert scaling.scale == before
