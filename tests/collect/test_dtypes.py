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


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
def test_sparse_tensors_are_dense_ones(layout):
    dense = torch.diag(torch.arange(4.0))
    blocks = (2, 2) if layout in ("sparse_bsr", "sparse_bsc") else None
    recorded = to_host(dense.to_sparse(layout=getattr(torch, layout), blocksize=blocks))
    assert recorded.layout is torch.strided and torch.equal(recorded, dense)


def test_rows_of_a_sparse_gradient_that_occur_twice_are_added():
    gradient = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.ones(2, 3), (4, 3))
    assert to_host(gradient).tolist() == [[0, 0, 0], [2, 2, 2], [0, 0, 0], [0, 0, 0]]


def test_a_sparse_tensor_that_would_take_much_memory_is_named():
    edges = torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1), (1 << 20, 1 << 20))
    with pytest.raises(NotTraceable, match="a sparse_coo tensor of 1099511627776 elements"):
        to_host(edges)


def test_what_no_dtype_of_a_trace_holds_is_named():
    with pytest.raises(NotTraceable, match="a tensor of dtype uint64"):
        to_host(torch.tensor([1], dtype=torch.uint64))
