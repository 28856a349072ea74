"""Numbers of dtypes that traces do not have are recorded in one that holds each of them exactly."""

import pytest
import torch

from ttrace_torch.tensors import NotTraceable, to_host

BYTES = torch.arange(256, dtype=torch.uint8)


@pytest.mark.parametrize("name", ["float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_narrow_numbers_are_what_they_are_in_a_wider_dtype(name):
    numbers = BYTES.view(getattr(torch, name))
    recorded = to_host(numbers)
    assert recorded.dtype == torch.bfloat16
    assert torch.equal(recorded.double().nan_to_num(-1), numbers.float().double().nan_to_num(-1))


def test_packed_numbers_are_unpacked_the_lower_half_first():
    packed = torch.tensor([[0x21, 0xF3]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    recorded = to_host(packed)
    assert recorded.dtype == torch.float8_e4m3fn
    assert recorded.float().tolist() == [[0.5, 1, 1.5, -6]]


def test_every_code_of_a_packed_number_has_its_value():
    recorded = to_host(BYTES[:16].view(torch.float4_e2m1fn_x2)).float()[::2]
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    assert torch.equal(recorded, torch.cat((values, -values)))
    assert torch.signbit(recorded).tolist() == [False] * 8 + [True] * 8


@pytest.mark.parametrize(("name", "wider"), [("uint16", torch.int32), ("uint32", torch.int64)])
def test_unsigned_integers_keep_their_values(name, wider):
    recorded = to_host(torch.tensor([0, 1, 65535], dtype=getattr(torch, name)))
    assert recorded.dtype == wider and recorded.tolist() == [0, 1, 65535]


def test_complex_numbers_are_pairs_of_real_ones():
    numbers = torch.tensor([[1 + 2j, 3 - 4j]])
    assert to_host(numbers).tolist() == [[[1, 2], [3, -4]]]
    assert to_host(numbers.conj()).tolist() == [[[1, -2], [3, 4]]]
    assert to_host(numbers.conj().imag).tolist() == [[-2, 4]]


def test_what_no_dtype_of_a_trace_holds_is_named():
    with pytest.raises(NotTraceable, match="a tensor of dtype uint64"):
        to_host(torch.tensor([1], dtype=torch.uint64))
