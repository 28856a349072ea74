"""Context parallelism: ranks that have parts of every sequence compute what one process computes."""

import functools

import pytest
import torch
from rounding import assert_equal_but_for_rounding, wrong_gradients
from runs import run

from tinygpt.options import Options
from tinygpt.parallel import context, ranks, ring

LAYOUTS = ["zigzag", "contiguous", "striped"]
COMBINATIONS = {
    "CP4": {"cp": 4},
    "CP2xTP2+SP": {"cp": 2, "tp": 2, "sp": True},
    "CP2xTP2+SP, gathered stripes": {"cp": 2, "tp": 2, "sp": True, "cp_comm": "allgather", "cp_layout": "striped"},
    "CP2xDP2": {"cp": 2, "dp": 2},
    "CP2xPP2, layers recomputed": {"cp": 2, "pp": 2, "recompute": "reentrant"},
}


@functools.cache
def reference(**changes):
    return run(**changes)


def assert_equal_to_single(dtype="fp32", **layout):
    candidate = run(dtype=dtype, **layout)
    assert_equal_but_for_rounding(candidate, reference(dtype=dtype), reference(dtype=dtype, lr=0.0), dtype)
    assert candidate.replicas_that_differ == []


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("comm", ["ring", "allgather"])
def test_each_layout_equals_the_single_process_by_ring_and_by_gathering(comm, layout):
    assert_equal_to_single(cp=2, cp_comm=comm, cp_layout=layout)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_context_parallelism_with_another_equals_the_single_process(name):
    assert_equal_to_single(**COMBINATIONS[name])


@pytest.mark.parametrize("comm", ["ring", "allgather"])
def test_bf16_equals_the_single_process(comm):
    assert_equal_to_single(dtype="bf16", cp=2, cp_comm=comm)


def test_gradients_that_are_not_summed_over_the_ranks_are_all_wrong(monkeypatch):
    # Ranks are forked: they run what is patched here.
    monkeypatch.setattr(ranks, "sum_gradients", lambda model, axis: None)
    candidate, single = run(cp=2, clip_grad=0.0), reference(clip_grad=0.0)
    assert set(wrong_gradients(candidate, single)) == single.main_grads.keys()
    assert candidate.losses[0] == pytest.approx(single.losses[0])
    assert candidate.replicas_that_differ != []


def test_a_key_that_belongs_to_another_position_is_noticed(monkeypatch):
    # The classic: tokens are in zigzag, the causal mask is not.
    def in_order(self, query, key, value, places):
        length = len(places.positions)
        by_rank = [
            context.Places(torch.zeros(length), torch.arange(rank * length, (rank + 1) * length))
            for rank in range(self.axis.size)
        ]
        own = by_rank[self.axis.rank]
        by_sample = (x.transpose(0, 1) for x in (query, key, value))
        hidden_by_rank = [context.hidden_keys(own, keys) for keys in by_rank]
        return ring.ring_attention(*by_sample, hidden_by_rank, self.axis).transpose(0, 1)

    monkeypatch.setattr(context.RingAttention, "attend", in_order)
    wrong = wrong_gradients(run(cp=2, clip_grad=0.0), reference(clip_grad=0.0))
    assert "decoder.layers.0.self_attention.linear_qkv.weight" in wrong


@pytest.mark.parametrize(
    "layout, tokens",
    [
        ("zigzag", [[0, 1, 6, 7, 8, 11], [2, 3, 4, 5, 9, 10]]),
        ("contiguous", [[0, 1, 2, 3, 8, 9], [4, 5, 6, 7, 10, 11]]),
        ("striped", [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]),
    ],
)
def test_ranks_have_the_tokens_that_help_promises(layout, tokens):
    options = Options(cp=2, cp_layout=layout)
    assert context.tokens_by_rank([0, 8, 12], options).tolist() == tokens
