"""Rows that pad the vocabulary are there, and change nothing."""

import functools
from dataclasses import replace

import pytest
import torch
from rounding import assert_equal_but_for_rounding
from runs import run

VOCAB = 60
PADDED = ["embedding.word_embeddings.weight", "output_layer.weight"]
LAYOUTS = {
    "one process": ({"pad_vocab_to": 32}, 64),
    "TP2": ({"pad_vocab_to": 16, "tp": 2}, 64),
    "TP2+SP, most of the second rank is padding": ({"pad_vocab_to": 48, "tp": 2, "sp": True}, 96),
    "TP4, the last rank has nothing but padding": ({"pad_vocab_to": 20, "tp": 4}, 80),
}


@functools.cache
def unpadded(**changes):
    return run(vocab=VOCAB, **changes)


def without_padding(padded):
    def cut(tensors):
        return {name: tensor[:VOCAB] if name in PADDED else tensor for name, tensor in tensors.items()}

    return replace(padded, parameters=cut(padded.parameters), main_grads=cut(padded.main_grads))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_padded_vocabulary_trains_like_the_plain_one_on_one_process(name):
    changes, size = LAYOUTS[name]
    padded = run(vocab=VOCAB, **changes)
    assert_equal_but_for_rounding(without_padding(padded), unpadded(), unpadded(lr=0.0))
    assert padded.replicas_that_differ == []
    for name in PADDED:
        assert len(padded.parameters[name]) == size
        assert torch.count_nonzero(padded.main_grads[name][VOCAB:]) == 0
        assert torch.count_nonzero(padded.parameters[name][VOCAB:]) > 0


def test_tokens_start_from_the_same_bits_whatever_the_padding():
    start = unpadded(lr=0.0).parameters
    for padding in (7, 64):
        padded = run(vocab=VOCAB, lr=0.0, pad_vocab_to=padding).parameters
        for name in PADDED:
            assert torch.equal(padded[name][:VOCAB], start[name])


def test_padding_that_is_not_masked_changes_the_loss(monkeypatch):
    monkeypatch.setattr("tinygpt.parallel.tensor.mask_padding", lambda logits, vocab, first_id: logits)
    wrong = run(vocab=VOCAB, pad_vocab_to=16, tp=2)
    assert wrong.losses[0] > unpadded().losses[0] + 0.01
    assert torch.count_nonzero(wrong.main_grads["output_layer.weight"][VOCAB:]) > 0
