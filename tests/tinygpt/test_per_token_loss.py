"""The loss of a step is the mean over all its unmasked tokens, whichever ranks have how many of them."""

import functools

import pytest
import torch
from rounding import assert_equal_but_for_rounding, wrong_gradients
from runs import SMALL, run

from tinygpt.data import micro_batch
from tinygpt.parallel import ranks
from tinygpt.schedule import divide_gradients

LAYOUTS = {"DP2": {"dp": 2}, "DP4": {"dp": 4}, "CP2xTP2": {"cp": 2, "tp": 2}, "PP2xDP2": {"pp": 2, "dp": 2}}


@functools.cache
def reference(**changes):
    return run(per_token_loss=True, **changes)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_mean_over_tokens_equals_the_single_process(name):
    candidate = run(per_token_loss=True, **LAYOUTS[name])
    assert_equal_but_for_rounding(candidate, reference(), reference(lr=0.0))
    assert candidate.replicas_that_differ == []


def test_the_mean_over_tokens_weighs_micro_batches_by_their_tokens():
    counts = [micro_batch(SMALL, number).unmasked.item() for number in range(SMALL.micro_batches)]
    assert len(set(counts)) > 1
    alone = [run(micro_batches=1, seed=seed, lr=0.0).losses[0] for seed in range(2)]
    together = [run(micro_batches=1, seed=seed, lr=0.0, per_token_loss=True).losses[0] for seed in range(2)]
    assert together == pytest.approx(alone, rel=1e-6)  # of one micro-batch both means are the same
    means = run(lr=0.0)
    assert reference(lr=0.0).losses[0] != pytest.approx(means.losses[0], rel=1e-6)
    assert reference(lr=0.0).grad_norms[0] != pytest.approx(means.grad_norms[0], rel=1e-6)


def test_dividing_by_the_tokens_of_one_rank_is_noticed(monkeypatch):
    def divide_by_own(model, count):
        own = micro_batch(SMALL, torch.distributed.get_rank()).unmasked * SMALL.micro_batches
        divide_gradients(model, own)

    monkeypatch.setattr(ranks, "divide_gradients", divide_by_own)
    candidate, single = run(per_token_loss=True, dp=2, clip_grad=0.0), reference(clip_grad=0.0)
    assert set(wrong_gradients(candidate, single)) == single.main_grads.keys()
