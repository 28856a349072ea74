"""A Llama: its stacked weights on tensor parallel ranks, and the heads that several ranks have."""

import functools

import pytest
import torch
from rounding import assert_equal_but_for_rounding, wrong_gradients
from runs import SMALL, run

from tinygpt import llama
from tinygpt.parallel import ranks

SIX_HEADS = {"heads": 6, "hidden": 48}
LAYOUTS = {
    "TP2": {"tp": 2},
    "TP2+SPxPP2": {"tp": 2, "sp": True, "pp": 2},
    "2 of 4 heads, TP2+SP": {"kv_heads": 2, "tp": 2, "sp": True},
    "2 of 4 heads, TP4": {"kv_heads": 2, "tp": 4},
    "3 of 6 heads, TP2": {"kv_heads": 3, "tp": 2, **SIX_HEADS},
    "1 of 4 heads, CP2xTP2+SP": {"kv_heads": 1, "cp": 2, "tp": 2, "sp": True},
    "2 of 4 heads, CP2 gathered": {"kv_heads": 2, "cp": 2, "cp_comm": "allgather"},
    "1 of 4 heads, TP2xDP2": {"kv_heads": 1, "tp": 2, "dp": 2},
}


@functools.cache
def _reference(**changes):
    return run(arch="llama", **changes)


def reference(layout, **changes):
    model = {name: layout[name] for name in ("kv_heads", "heads", "hidden") if name in layout}
    return _reference(**model, **changes)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_llama_equals_the_single_process(name):
    layout = LAYOUTS[name]
    candidate = run(arch="llama", **layout)
    assert_equal_but_for_rounding(candidate, reference(layout), reference(layout, lr=0.0))
    assert candidate.replicas_that_differ == []


@pytest.mark.parametrize("name", ["2 of 4 heads, TP4", "3 of 6 heads, TP2"])
def test_gradients_of_shared_heads_that_are_not_summed_are_wrong_and_differ(name, monkeypatch):
    monkeypatch.setattr(ranks, "sum_shared_rows", lambda model, axis: None)
    layout = LAYOUTS[name]
    candidate = run(arch="llama", clip_grad=0.0, **layout)
    weights = [f"decoder.layers.{layer}.self_attention.linear_qkv.weight" for layer in range(SMALL.layers)]
    assert wrong_gradients(candidate, reference(layout, clip_grad=0.0)) == weights
    assert candidate.replicas_that_differ == [
        f"{weight} {what} in heads that several ranks have"
        for what in ("master", "parameter", "main_grad")
        for weight in weights
    ]


def test_a_llama_has_no_biases_and_no_learned_positions():
    names = reference({}).parameters.keys()
    assert not [name for name in names if name.endswith("bias") or "position" in name]


def test_a_query_and_a_key_know_each_other_by_their_distance():
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 8)

    def score(query_position, key_position):
        turned = (llama.rotate(x, torch.tensor([at])) for x, at in ((query, query_position), (key, key_position)))
        return torch.mul(*turned).sum().item()

    assert score(7, 3) == pytest.approx(score(20, 16), rel=1e-5)
    assert score(0, 0) == pytest.approx((query * key).sum().item(), rel=1e-6)
    assert score(7, 3) != pytest.approx(score(7, 4), rel=1e-2)
