"""Features that were made one by one meet: what each does to the ranks, the data and the gradients goes together."""

import functools

import pytest
from rounding import assert_equal_but_for_rounding, wrong_gradients
from runs import run

MOE = {"layers": 2, "experts": 4, "topk": 2}

# The work, which the single process does too, and how it is divided.
COMBINATIONS = {
    "a llama with one key head, TP2+SPxCP2xPP2": (
        {"arch": "llama", "kv_heads": 1},
        {"tp": 2, "sp": True, "cp": 2, "pp": 2},
    ),
    "two chunks a stage, PP2xCP2, gathered stripes, layers recomputed": (
        {},
        {"pp": 2, "vpp": 2, "cp": 2, "cp_comm": "allgather", "cp_layout": "striped", "recompute": "reentrant"},
    ),
    "a tied head with padding, mean over tokens, TP2xPP2": (
        {"tied": True, "vocab": 60, "per_token_loss": True},
        {"tp": 2, "pp": 2},
    ),
    "experts, two chunks a stage, EP2 over DP2, PP2": (MOE | {"layers": 4}, {"ep": 2, "dp": 2, "pp": 2, "vpp": 2}),
    "experts, EP2, EDP2 over TP2+SPxCP2, mean over tokens": (
        MOE | {"per_token_loss": True},
        {"ep": 2, "tp": 2, "sp": True, "cp": 2},
    ),
    "experts of a llama, packed, EP2, ETP2 over TP2xCP2": (
        MOE | {"arch": "llama", "packed": True},
        {"ep": 2, "etp": 2, "tp": 2, "cp": 2},
    ),
    "ZeRO 1 of a llama whose ranks share a key head, TP2xCP2xDP2": (
        {"arch": "llama", "kv_heads": 1},
        {"zero": 1, "tp": 2, "cp": 2, "dp": 2},
    ),
    "ZeRO 2, mean over tokens, CP2xDP2": ({"per_token_loss": True}, {"zero": 2, "cp": 2, "dp": 2}),
    "packed, two chunks a stage, mean over tokens, CP2xPP2": (
        {"packed": True, "per_token_loss": True},
        {"cp": 2, "pp": 2, "vpp": 2},
    ),
}


@functools.cache
def _single(work, lr):
    return run(lr=lr, **dict(work))


def single(work, tp=1, lr=1.0):
    # A vocabulary is padded to a multiple that depends on tp.
    padding = {"pad_vocab_to": 16 * tp} if "vocab" in work else {}
    return _single(tuple((work | padding).items()), lr)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_combination_equals_the_single_process(name):
    work, layout = COMBINATIONS[name]
    padding = {"pad_vocab_to": 16} if "vocab" in work else {}
    candidate = run(**work, **padding, **layout)
    tp = layout.get("tp", 1)
    assert_equal_but_for_rounding(candidate, single(work, tp), single(work, tp, lr=0.0))
    assert candidate.replicas_that_differ == []


def test_gradients_of_experts_that_are_summed_as_others_are_wrong_and_no_others(monkeypatch):
    monkeypatch.setattr("tinygpt.parallel.data.is_expert", lambda parameter: False)
    changes = MOE | {"clip_grad": 0.0}
    candidate, plain = run(cp=2, ep=2, **changes), run(**changes)
    assert set(wrong_gradients(candidate, plain)) == {name for name in plain.parameters if ".local_experts." in name}
