"""Experts on many ranks compute what they compute on one, however few tokens some of them get."""

import functools
from dataclasses import replace

import pytest
import torch
from rounding import EPS, ROUNDINGS, assert_equal_but_for_rounding
from runs import SMALL, run

from tinygpt import model, moe
from tinygpt.data import micro_batch
from tinygpt.parallel import experts

# Two layers are enough: what one expert gets wrong, the next layer and its router see.
MOE = {"layers": 2, "experts": 4, "topk": 2}

LAYOUTS = {
    "EP2 over DP2": {"dp": 2, "ep": 2},
    "EP2, EDP2 over DP4": {"dp": 4, "ep": 2},
    "experts on every rank of DP2": {"dp": 2},
    "EP2 over TP2+SP": {"tp": 2, "sp": True, "ep": 2},
    "EP2, EDP2 over TP2+SPxDP2": {"tp": 2, "sp": True, "dp": 2, "ep": 2},
    "EP2, ETP2 over TP2xDP2": {"tp": 2, "dp": 2, "ep": 2, "etp": 2},
    "EP2, ETP2 over TP2+SPxDP2": {"tp": 2, "sp": True, "dp": 2, "ep": 2, "etp": 2},
    "ETP2, EDP2 over DP4": {"dp": 4, "etp": 2},
    "EP2 over TP2": {"tp": 2, "ep": 2},
    "EP2xPP2": {"dp": 2, "pp": 2, "ep": 2},
    "EP2 over TP2+SP, layers recomputed": {"tp": 2, "sp": True, "ep": 2, "recompute": "non-reentrant"},
}
# More experts than a micro-batch has tokens. (Of the last layer's, some get masked tokens only: no gradient either.)
STARVED = {"layers": 2, "experts": 64, "topk": 1}


@functools.cache
def reference(**changes):
    return run(**changes)


def rows_per_expert(**changes):
    """Of the plain model with the run's data: counts by (layer, micro-batch), one per expert."""
    options = replace(SMALL, **changes)
    gpt, counts = model.build_model(options), []
    for layer in gpt.decoder.layers:
        layer.mlp.router.register_forward_hook(
            lambda module, inputs, output: counts.append(output.choices.flatten().bincount(minlength=options.experts))
        )
    for number in range(options.micro_batches):
        batch = micro_batch(options, number)
        gpt(batch.tokens, batch.labels)
    return torch.stack(counts)


def test_in_these_runs_experts_get_different_numbers_of_tokens():
    counts = rows_per_expert(**MOE)
    assert len(counts) == MOE["layers"] * SMALL.micro_batches
    assert counts.sum(dim=1).tolist() == [SMALL.seq * SMALL.micro_batch_size * MOE["topk"]] * len(counts)
    assert all(len(set(of_one.tolist())) > 1 for of_one in counts)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_loss_gradients_and_parameters_equal_the_single_process(layout):
    candidate = run(**MOE, **LAYOUTS[layout])
    assert_equal_but_for_rounding(candidate, reference(**MOE), reference(lr=0.0, **MOE), "fp32")
    assert candidate.replicas_that_differ == []


def test_an_expert_without_tokens_has_a_gradient_of_zeros_and_stops_nobody():
    idle = rows_per_expert(**STARVED)[:: STARVED["layers"]].sum(dim=0) == 0  # in layer 0
    assert 0 < idle.sum() < STARVED["experts"]
    single, candidate = reference(**STARVED), run(dp=2, ep=2, **STARVED)
    assert candidate.main_grads.keys() == single.main_grads.keys()
    assert candidate.replicas_that_differ == []
    for number, is_idle in enumerate(idle.tolist()):
        for linear in ("linear_fc1", "linear_fc2"):
            name = f"decoder.layers.0.mlp.experts.local_experts.{number}.{linear}.weight"
            assert (candidate.main_grads[name].count_nonzero() == 0) == is_idle, name
            assert relative_error(candidate.main_grads[name], single.main_grads[name]) <= ROUNDINGS * EPS["fp32"], name


def relative_error(candidate, reference):
    difference = (candidate - reference).norm()
    return difference / reference.norm() if difference > 0 else difference


def test_several_steps_in_bf16_stay_with_the_single_process():
    # A near tie may send a token to another expert: parameters may differ, the mean over all tokens hardly does.
    changes = {"dtype": "bf16", "steps": 3, "clip_grad": 0.0, **MOE}
    candidate, single = run(tp=2, sp=True, ep=2, **changes), run(**changes)
    assert candidate.losses == pytest.approx(single.losses, rel=EPS["bf16"])
    assert single.losses[-1] != pytest.approx(single.losses[0], rel=2 * EPS["bf16"])
    assert candidate.replicas_that_differ == []


@pytest.mark.parametrize("layout", ["EP2 over DP2", "EP2 over TP2+SP", "EP2, ETP2 over TP2xDP2", "ETP2, EDP2 over DP4"])
def test_token_ids_name_the_row_that_an_expert_computes(layout, monkeypatch, tmp_path):
    entered = _watch(monkeypatch, tmp_path, experts.Experts, "mix", "entered")
    computed = _watch(monkeypatch, tmp_path, moe.Expert, "forward", "computed")
    options = replace(SMALL, **(changes := {**MOE, "layers": 1, "micro_batches": 4, **LAYOUTS[layout]}))
    run(**changes)
    local = options.experts // options.ep
    for microbatch in range(options.micro_batches // options.dp):
        seen = set()
        for rank in range(options.world_size):
            for number in range(local):
                hidden, token_ids = computed(rank, microbatch * local + number)
                expert = rank // options.etp % options.ep * local + number
                for value, (source, row) in zip(hidden, token_ids.tolist(), strict=True):
                    rows, _, choices = entered(source, microbatch)
                    assert torch.equal(value, rows[row])
                    assert expert in choices[row]
                    assert (rank % options.etp, expert, source, row) not in seen
                    seen.add((rank % options.etp, expert, source, row))
        # Where tp ranks have the same rows, each row is sent by one of them.
        tokens = options.seq * options.micro_batch_size * options.dp
        assert len(seen) == tokens * options.topk * options.etp


def _watch(monkeypatch, directory, module_type, method, what):
    """Has every call of the method of such a module write what it is given; returns what reads that of (rank, call)."""
    called, calls = getattr(module_type, method), []

    def writing(module, *args, **kwargs):
        path = directory / f"{what}-{torch.distributed.get_rank()}-{len(calls)}.pt"
        torch.save([tensor.detach() for tensor in (*args, *kwargs.values())], path)
        calls.append(None)
        return called(module, *args, **kwargs)

    # The ranks are forked from this process.
    monkeypatch.setattr(module_type, method, writing)
    return functools.cache(lambda rank, call: torch.load(directory / f"{what}-{rank}-{call}.pt"))
