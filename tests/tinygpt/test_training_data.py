import pytest
import torch

from tinygpt import model
from tinygpt.data import micro_batch
from tinygpt.options import Options

SIZES = [Options(), Options(vocab=64, seq=16), Options(vocab=96, seq=32, micro_batch_size=4), Options(vocab=3)]


@pytest.mark.parametrize(
    "vocab, tp", [(options.vocab, tp) for options in SIZES for tp in range(1, 9) if options.vocab % tp == 0]
)
def test_every_micro_batch_has_the_first_and_last_token_of_each_vocabulary_range(vocab, tp):
    options = next(options for options in SIZES if options.vocab == vocab)
    share = vocab // tp
    for number in range(8):
        tokens = set(micro_batch(options, number).tokens.flatten().tolist())
        for start in range(0, options.vocab, share):
            assert {start, start + share - 1} <= tokens


@pytest.mark.parametrize("options", SIZES, ids=lambda o: f"vocab {o.vocab}")
def test_samples_of_a_micro_batch_have_different_numbers_of_unmasked_tokens(options):
    for number in range(8):
        counts = micro_batch(options, number).loss_mask.sum(dim=1).tolist()
        assert len(set(counts)) == len(counts)
        assert min(counts) >= options.seq // 2


def test_labels_are_the_next_tokens():
    batch = micro_batch(Options(), 0)
    assert torch.equal(batch.labels[:, :-1], batch.tokens[:, 1:])


def test_micro_batches_differ_and_come_again_the_same():
    options = Options()
    first, second = micro_batch(options, 0), micro_batch(options, 1)
    assert not torch.equal(first.tokens, second.tokens)
    assert not torch.equal(first.loss_mask, second.loss_mask)
    assert torch.equal(first.tokens, micro_batch(options, 0).tokens)
    assert not torch.equal(first.tokens, micro_batch(Options(seed=7), 0).tokens)


def test_no_bias_starts_at_zero_and_no_layer_norm_weight_at_one():
    for name, parameter in model.build_model(Options(dtype="fp32")).named_parameters():
        assert parameter.std() > 0.01, name
        assert torch.count_nonzero(parameter) == parameter.numel(), name
