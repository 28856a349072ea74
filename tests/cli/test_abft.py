"""`ttrace abft`, where nobody says how ranks hold their tensors."""

import numpy
import pytest

from traces import Tensor, record_run


@pytest.fixture
def ranks():
    """The parameter that each of two ranks holds, and a gradient."""
    values = numpy.arange(32, dtype="float32").reshape(2, 4, 4)
    return [
        [
            Tensor("fc.weight", half, kind="param", microbatch=-1),
            Tensor("fc.weight", half, kind="main_grad", microbatch=-1),
        ]
        for half in values
    ]


def test_parameters_that_may_be_parts_are_not_called_wrong_copies(ttrace, ranks):
    record_run(ttrace.directory / "candidate", ranks, axes="tp=2")
    message = ttrace.refuses("abft", "candidate")
    assert "1 parameters differ between ranks, the first fc.weight; expected -a, a file or the name" in message
    (ttrace.directory / "a.yaml").write_text("fc.weight: {tp_dim: 0}\n")
    assert "fail" not in ttrace("abft", "candidate", "-a", "a.yaml", "--csv", "-", code=2)[0]  # nothing to check in it


def test_along_data_parallel_axes_parameters_are_copies(ttrace, ranks):
    record_run(ttrace.directory / "candidate", ranks, axes="dp=2")
    assert ttrace("abft", "candidate", code=1)[0].startswith("different\nfirst wrong tensor: fc.weight param")
