"""What the collector computes about a step: copies in used memory, fingerprints, factors of clipping."""

import os

import pytest
import torch
from conftest import HERE

from ttrace_torch import device_sketches
from ttrace_torch.copies import Copies
from ttrace_torch.step_facts import differing, fingerprint, step_counts
from ttrace_torch.step_gradients import clip_factors

LIBRARY = os.path.join(os.environ.get("TTRACE_BUILD", HERE.parent.parent / "build"), "lib", "libttrace.so")


def fingerprint_here(tensor):
    return fingerprint(tensor, LIBRARY)


FINGERPRINTS = [fingerprint_here, device_sketches.fingerprint]


def test_copies_are_made_in_the_memory_of_forgotten_ones():
    tensor = torch.arange(12.0).reshape(3, 4)
    copies = Copies()
    copies.keep("a", tensor)
    first = copies.kept["a"]
    tensor.add_(1)
    assert torch.equal(first, torch.arange(12.0).reshape(3, 4))
    copies.forget()
    assert not copies.kept
    copies.keep("a", tensor)
    assert copies.kept["a"] is first
    assert torch.equal(first, tensor)
    assert first.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("other", [torch.ones(2), torch.ones(3, 4, dtype=torch.float64), torch.ones(4, 3)])
def test_copies_of_other_tensors_by_the_same_name_are_right(other):
    copies = Copies()
    copies.keep("a", torch.zeros(3, 4))
    copies.forget()
    copies.keep("a", other)
    assert torch.equal(copies.kept["a"], other)
    assert copies.kept["a"].dtype == other.dtype


def test_released_memory_is_not_used_again():
    copies = Copies()
    copies.keep("a", torch.zeros(3))
    first = copies.kept["a"]
    copies.forget()
    copies.release()
    copies.keep("a", torch.ones(3))
    assert copies.kept["a"] is not first


# In words of memory and in elements: an odd number of them, a place that is no multiple of 8 bytes, not contiguous.
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("part", [slice(None), slice(0, -1), slice(1, None), slice(2, -2), slice(None, None, 2)])
@pytest.mark.parametrize("fingerprint", FINGERPRINTS)
def test_a_fingerprint_shows_every_change(fingerprint, dtype, part):
    whole = torch.randn(70_000, generator=torch.Generator().manual_seed(1)).to(dtype)
    tensor = whole[part]
    before = fingerprint(tensor)
    assert fingerprint(tensor.clone()) == before  # wherever it lies in memory
    for place in (0, 1, 35_000 % len(tensor), len(tensor) - 1):
        old = tensor[place].item()
        tensor[place] = old + 1
        assert fingerprint(tensor) != before
        tensor[place] = old
    swapped = tensor.clone()
    swapped[0], swapped[5] = tensor[5], tensor[0]
    tensor.copy_(swapped)
    assert fingerprint(tensor) != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [2, 4, 100, 1024, 70_000])
@pytest.mark.parametrize("fingerprint", FINGERPRINTS)
def test_a_fingerprint_shows_signs_that_change_in_pairs(fingerprint, count, dtype):
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = int(fingerprint(tensor))
    for changed in (tensor, tensor[:2], tensor[-2:], tensor[1::2], tensor[count // 2 :]):
        changed.neg_()
        assert int(fingerprint(tensor)) != before
        changed.neg_()
    assert int(fingerprint(tensor)) == before


@pytest.mark.parametrize("shape", [(), (0,), (3,), (1024,), (70_000,), (33, 65)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_parameter_that_moves_between_a_device_and_the_host_keeps_its_fingerprint(shape, dtype):
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    here, there = fingerprint_here(tensor), device_sketches.fingerprint(tensor)
    assert differing([("in", there, here), ("out", here, there)]) == set()
    changed = fingerprint_here(tensor + 1) if tensor.numel() else None
    assert differing([("in", there, changed)]) == {"in"}


@pytest.mark.parametrize("fingerprint", FINGERPRINTS)
def test_fingerprints_of_many_parameters_are_compared_at_once(fingerprint):
    a, b = (fingerprint(torch.full((3,), value)) for value in (1.0, 2.0))
    again = fingerprint(torch.full((3,), 1.0))
    pairs = [("equal", a, again), ("other", a, b), ("gone", a, None), ("never", None, None), ("come", None, b)]
    assert differing(pairs) == {"other", "gone", "come"}
    assert differing([]) == set()


def test_step_counts_are_those_of_the_state_or_of_the_group():
    states = {"state": ({"step": torch.tensor(3.0)}, {"step": 7}), "group": ({}, {"step": 7}), "none": ({}, {})}
    assert step_counts(states) == {"state": 3.0, "group": 7.0, "none": None}


@pytest.mark.parametrize("factor", [0.3, torch.tensor(0.7).item(), 1e-6])
def test_the_factor_of_clipping_is_found_and_a_changed_element_is_not_overlooked(factor):
    main = torch.randn(50_000, generator=torch.Generator().manual_seed(2))
    other = torch.randn(7, generator=torch.Generator().manual_seed(3))
    factors = clip_factors({"a": (main * factor, main), "b": (other * factor, other), "c": (other, other)})
    assert factors["a"] == factors["b"] == pytest.approx(factor, rel=1e-7)
    assert factors["c"] == 1.0
    wrong = main * factor
    wrong[40_000] *= 1.001
    factors = clip_factors({"a": (wrong, main), "b": (other * factor, other)})
    assert factors["a"] is None


@pytest.mark.parametrize("seed", range(20))
def test_the_factor_of_clipping_in_fp64_does_not_depend_on_how_sums_round(seed):
    generator = torch.Generator().manual_seed(seed)
    mains = [torch.randn(size, generator=generator, dtype=torch.float64) for size in (3, 500, 20_000)]
    factor = 0.1 + torch.rand((), generator=generator, dtype=torch.float64).item()
    factors = clip_factors({size: (main * factor, main) for size, main in enumerate(mains)})
    assert list(factors.values()) == [pytest.approx(factor, rel=1e-15)] * 3
    factors = clip_factors({size: (main * factor * (1 + 1e-15 * size), main) for size, main in enumerate(mains)})
    assert None in factors.values()
