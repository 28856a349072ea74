"""fp16 and its loss scale."""

import functools

import pytest
import torch
from rounding import assert_equal_but_for_rounding
from runs import run

from tinygpt.loss_scaler import GROWTH_INTERVAL, LossScaler

# A sum over tokens has the same gradients, and overflows alike, however micro-batches are dealt out.
OVERFLOW = {"dtype": "fp16", "per_token_loss": True, "loss_scale": 2**17, "optimizer": "adam", "lr": 1e-3}


@functools.cache
def reference(**changes):
    return run(dtype="fp16", **changes)


@pytest.mark.parametrize("layout", [{"tp": 2, "sp": True}, {"dp": 2, "pp": 2}, {"dp": 2, "zero": 1}], ids=str)
def test_loss_gradients_and_parameters_equal_the_single_process(layout):
    candidate = run(dtype="fp16", **layout)
    assert_equal_but_for_rounding(candidate, reference(), reference(lr=0.0), "fp16")
    assert candidate.replicas_that_differ == []


@pytest.mark.parametrize(
    "layout", [{}, {"tp": 2, "pp": 2}, {"dp": 2, "zero": 1, "overlap_param_gather": True}], ids=str
)
def test_all_ranks_skip_a_step_that_overflows_and_halve_the_scale(layout):
    skipped, start = run(**OVERFLOW, **layout), run(**OVERFLOW | {"lr": 0.0})
    assert skipped.loss_scales == {0: 2**16}
    for name, parameter in start.parameters.items():
        assert torch.equal(skipped.parameters[name], parameter), name


def test_no_step_after_a_skipped_one_succeeds_with_the_skipped_step_bug():
    many = OVERFLOW | {"steps": 12, "dp": 2, "zero": 1, "overlap_param_gather": True}
    right, wrong = run(**many), run(**many, bug="skipped-step")
    assert list(wrong.loss_scales) == list(range(12))
    assert 0 < len(right.loss_scales) < 12


def test_parameters_gathered_in_the_background_are_those_of_zero_1():
    steps = {"steps": 2, "optimizer": "adam", "lr": 1e-3, "dp": 2, "zero": 1}
    overlapped, plain = run(**steps, overlap_param_gather=True), run(**steps)
    for name, parameter in plain.parameters.items():
        assert torch.equal(overlapped.parameters[name], parameter), name
        assert torch.equal(overlapped.rounded[name], plain.rounded[name]), name


def test_the_scale_doubles_after_many_steps_without_overflow():
    scaler = LossScaler(4)
    for _ in range(GROWTH_INTERVAL):
        assert scaler.scale == 4
        scaler.unscale([torch.ones(1)], lambda found: None)
        scaler.update()
    assert scaler.scale == 8
    scaler.unscale([torch.tensor([1.0, torch.inf])], lambda found: None)
    scaler.update()
    assert scaler.overflowed and scaler.scale == 4 and scaler.good_steps == 0
