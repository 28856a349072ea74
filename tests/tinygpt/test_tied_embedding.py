"""The head that uses the word embedding's weight."""

import functools

import pytest
import torch
from pieces import TIED
from rounding import EPS, ROUNDINGS, assert_equal_but_for_rounding
from runs import run

LAYOUTS = {
    "both on one stage": {"tp": 2},
    "on two stages": {"pp": 2},
    "on two stages of two chunks": {"pp": 2, "vpp": 2},
    "on two stages with a third between": {"pp": 3, "first_stage_layers": 1, "last_stage_layers": 1},
    "on two stages, sharded": {"pp": 2, "tp": 2, "sp": True},
}


@functools.cache
def single(**changes):
    return run(tied=True, **changes)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tied_head_equals_the_single_process(name):
    candidate = run(tied=True, **LAYOUTS[name])
    assert_equal_but_for_rounding(candidate, single(), single(lr=0.0))
    # Both stages' copies, bit by bit.
    assert candidate.replicas_that_differ == []


def test_copies_stay_equal_over_steps_of_adam():
    changes = {"optimizer": "adam", "lr": 1e-3, "steps": 2}
    candidate, plain = run(tied=True, pp=2, vpp=2, **changes), single(**changes)
    assert candidate.replicas_that_differ == []
    assert candidate.losses == pytest.approx(plain.losses, rel=ROUNDINGS * EPS["fp32"])


def test_the_tied_weight_is_one_parameter_with_both_gradients():
    tied, free = single(), run()
    assert free.parameters.keys() - tied.parameters.keys() == {"output_layer.weight"}
    assert not torch.equal(tied.main_grads[TIED], free.main_grads[TIED])
