"""Faults have the size that the table of sensitivities says, and reach ttrace as they are."""

import math

import pytest
import torch

from evaluations.mutations import (
    MUTATIONS,
    changed_element,
    changed_row,
    flipped_bit,
    lost_term,
    scaled,
    swapped_chunk,
    zeroed_rows,
)
from evaluations.shards import read_shards, write_shards
from traces import Tensor, bfloat16, record_run


@pytest.fixture
def shards():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(32, 4, 16, generator=generator) for _ in range(2)]


def relative_error(shards, changed):
    x, y = torch.cat(changed).double(), torch.cat(shards).double()
    return ((x - y).norm() / y.norm()).item()


def test_scaling_and_a_lost_term_have_the_error_that_they_should(shards):
    assert relative_error(shards, scaled(shards, 0.25)) == pytest.approx(0.25)
    # One of n independent terms of equal variance has 1 / sqrt(n) of the norm of their sum.
    assert relative_error(shards, lost_term(shards, 1 / 64)) == pytest.approx(1 / 8, rel=0.05)


def test_rows_are_zeroed_and_swapped(shards):
    changed = zeroed_rows(shards, 3 / 4)  # all of the first shard, half of the second
    assert changed[0].count_nonzero() == 0 and torch.equal(changed[1][16:], shards[1][16:])
    assert changed[1][:16].count_nonzero() == 0
    changed = swapped_chunk(shards, 1 / 8)
    assert torch.equal(changed[0][:8], shards[0][8:16]) and torch.equal(changed[0][8:16], shards[0][:8])
    assert torch.equal(changed[0][16:], shards[0][16:]) and torch.equal(changed[1], shards[1])
    assert zeroed_rows(shards, 1 / 512) is None and swapped_chunk(shards, 1 / 2) is None


def test_one_row_and_one_element_are_changed(shards):
    row = changed_row(shards, 0.5)[0] - shards[0]
    assert row.count_nonzero() == 16 and torch.allclose(row.view(-1, 16)[64], shards[0].view(-1, 16)[64] / 2)
    changed = changed_element(shards, 16)
    difference = changed[0] - shards[0]
    assert difference.count_nonzero() == 1 and torch.equal(changed[1], shards[1])
    assert difference.abs().max().item() == pytest.approx(16, rel=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bit", [0, 1, 2])
def test_a_flipped_exponent_bit_changes_one_element_by_a_power_of_two(dtype, bit):
    shards = [torch.linspace(0.01, 3, 48).view(3, 16).to(dtype)]
    rms = shards[0].double().square().mean().sqrt().item()
    ratio = (flipped_bit(shards, bit)[0].double() / shards[0].double()).flatten()
    (element,) = (ratio != 1).nonzero().flatten().tolist()
    assert ratio[element].item() in (2**2**bit, 2 ** -(2**bit))
    assert shards[0].flatten()[element].item() == pytest.approx(rms, rel=0.05)


def test_no_mutation_changes_the_shards_it_is_given(shards):
    before = [shard.clone() for shard in shards]
    for mutation in MUTATIONS:
        mutation.apply(shards, mutation.sizes[len(mutation.sizes) // 2])
    assert all(torch.equal(a, b) for a, b in zip(before, shards, strict=True))


def test_shards_survive_a_trace_of_their_own(tmp_path):
    values = torch.arange(8, dtype=torch.float32).view(4, 2).numpy()
    tensors = [[bfloat16(Tensor("layer", values + 8 * rank)), Tensor("other", values)] for rank in range(2)]
    trace = record_run(tmp_path / "trace", tensors, axes="tp=2,sp=tp")
    first = read_shards(trace, "layer", "output", 0)
    assert [value.dtype for value in first.values] == [torch.bfloat16] * 2
    write_shards(first, first.values, tmp_path / "again")
    again = read_shards(tmp_path / "again", "layer", "output", 0)
    assert all(torch.equal(a, b) for a, b in zip(first.values, again.values, strict=True))
    for was, is_now in zip(first.ranks, again.ranks, strict=True):
        for attribute in ("axes", "aliases", "coordinates", "run_id", "rank"):
            assert was.attributes[attribute] == is_now.attributes[attribute]
    with pytest.raises(ValueError):
        read_shards(trace, "nothing", "output", 0)
    assert math.isclose(again.values[1].float().sum().item(), values.sum() + 64)
