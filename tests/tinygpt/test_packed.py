"""Packed rows: documents of different lengths that do not see each other."""

import functools
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from rounding import assert_equal_but_for_rounding, wrong_gradients
from runs import SMALL, run

from tinygpt import model
from tinygpt.attention import Places, hidden_keys, places_in_row
from tinygpt.data import micro_batch
from tinygpt.options import Options, vocabulary_boundaries
from tinygpt.parallel.context import part_of_rank

LAYOUTS = {
    "CP2": {"cp": 2},
    "CP2, gathered stripes": {"cp": 2, "cp_comm": "allgather", "cp_layout": "striped"},
    "CP2xTP2+SP": {"cp": 2, "tp": 2, "sp": True},
    "TP2+SPxPP2": {"tp": 2, "sp": True, "pp": 2},
    "DP2xTP2": {"dp": 2, "tp": 2},
    "a llama, CP2, mean over tokens": {"arch": "llama", "kv_heads": 2, "cp": 2, "per_token_loss": True},
}


@functools.cache
def _reference(**changes):
    return run(packed=True, **changes)


def reference(layout, **changes):
    work = {name: layout[name] for name in ("arch", "kv_heads", "per_token_loss") if name in layout}
    return _reference(**work, **changes)


@pytest.mark.parametrize("name", LAYOUTS)
def test_packed_rows_equal_the_single_process(name):
    layout = LAYOUTS[name]
    candidate = run(packed=True, **layout)
    assert_equal_but_for_rounding(candidate, reference(layout), reference(layout, lr=0.0))
    assert candidate.replicas_that_differ == []


def test_attention_across_documents_is_noticed(monkeypatch):
    right = reference({}, clip_grad=0.0)

    def blind(length, cu_seqlens):
        places = places_in_row(length, cu_seqlens)
        return Places(torch.zeros_like(places.documents), places.positions)

    monkeypatch.setattr(model, "places_in_row", blind)
    wrong = wrong_gradients(run(packed=True, clip_grad=0.0), right)
    assert "decoder.layers.0.self_attention.linear_qkv.weight" in wrong


def test_a_document_has_the_losses_that_it_has_alone():
    options = Options(packed=True, dtype="fp32")
    gpt, batch = model.build_model(options), micro_batch(options, 0)
    packed = gpt(batch.tokens, batch.labels, **batch.packing)
    starts = batch.packing["cu_seqlens"].tolist()
    for start, end in pairwise(starts):
        alone = gpt(batch.tokens[:, start:end], batch.labels[:, start:end])
        torch.testing.assert_close(packed[:, start:end], alone)


def test_a_packed_row_has_documents_of_different_lengths_and_every_boundary_token():
    for number in range(8):
        batch = micro_batch(Options(packed=True), number)
        cu_seqlens = batch.packing["cu_seqlens"]
        lengths = cu_seqlens.diff().tolist()
        assert cu_seqlens.dtype == torch.int32 and cu_seqlens[0] == 0
        assert batch.tokens.shape == batch.labels.shape == batch.loss_mask.shape == (1, cu_seqlens[-1])
        assert len(set(lengths)) == len(lengths) == 4
        assert set(vocabulary_boundaries(Options().vocab)) <= set(batch.tokens.flatten().tolist())
        for start, end in pairwise(cu_seqlens):
            assert torch.equal(batch.labels[0, start : end - 1], batch.tokens[0, start + 1 : end])


class OneOf:
    """A context parallel axis as the data see it."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@pytest.mark.parametrize(
    "layout, divisor", [({"cp": 2}, 4), ({"cp": 2, "cp_layout": "contiguous"}, 2), ({"cp": 2, "tp": 2, "sp": True}, 8)]
)
def test_documents_are_padded_to_be_split_and_padding_does_not_count(layout, divisor):
    options = Options(packed=True, **layout)
    whole = micro_batch(options, 0)
    parts = [part_of_rank(whole, OneOf(rank, 2), options) for rank in range(2)]
    lengths = whole.packing["cu_seqlens"].diff()
    for part in parts:
        assert torch.equal(part.packing["cu_seqlens"], whole.packing["cu_seqlens"])
        padded = part.packing["cu_seqlens_padded"]
        assert padded.dtype == torch.int32
        assert torch.equal(padded.diff(), (lengths + divisor - 1) // divisor * divisor)
        assert part.tokens.shape == (1, padded[-1] // 2)
    assert sum(part.loss_mask.sum() for part in parts) == whole.loss_mask.sum() == parts[0].unmasked


def test_padding_sees_only_padding_and_nothing_sees_it():
    row = places_in_row(8, torch.tensor([0, 3, 5]), torch.tensor([0, 4, 8]))
    assert row.documents.tolist() == [0, 0, 0, -1, 1, 1, -1, -1]
    assert row.positions.tolist() == [0, 1, 2, 0, 0, 1, 0, 0]
    seen = [[key for key, hidden in enumerate(keys) if not hidden] for keys in hidden_keys(row, row).tolist()]
    assert seen == [[0], [0, 1], [0, 1, 2], [3, 6, 7], [4], [4, 5], [3, 6, 7], [3, 6, 7]]


def test_one_micro_batch_may_be_longer_than_another():
    lengths = {micro_batch(replace(SMALL, packed=True), number).tokens.shape[1] for number in range(4)}
    assert len(lengths) > 1
