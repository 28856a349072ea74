"""Traces and logical tensors as Python sees them."""

import shutil
import subprocess
import sys

import ml_dtypes
import numpy
import pytest
from conftest import PACKAGE, halves, model

import ttrace
from traces import Tensor, record_run

INDICES = [
    ...,
    (),
    0,
    -1,
    slice(1, 3),
    (slice(None), 2),
    (slice(-3, None), slice(2, 100)),
    (..., -1),
    (1, ...),
    (1, 2),
    (slice(2, 2), 0),
    (slice(3, 1),),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_a_slice_is_that_of_numpy_however_ranks_hold_the_tensor(traces, index):
    values = model()[0].values
    for directory, annotations in (("reference", ""), ("candidate", "gpt.yaml")):
        tensor = ttrace.open(directory, annotations=annotations).tensor("mlp.weight")
        numpy.testing.assert_array_equal(tensor[index].numpy(), values[index], strict=True)
        assert tensor[index].shape == values[index].shape
        assert tensor[index].nbytes == values[index].nbytes


def test_a_slice_of_a_slice_counts_from_its_own_start(traces):
    tensor, values = ttrace.open("candidate", annotations="gpt.yaml").tensor("mlp.weight"), model()[0].values
    for indices in ((slice(1, 4), slice(1, 3)), (1, slice(2, 5), -1), ((slice(1, 3), 4), 1), (..., (-1, ...), 0)):
        part, expected = tensor, values
        for index in indices:
            part, expected = part[index], expected[index]
        numpy.testing.assert_array_equal(part.numpy(), expected, strict=True)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (4, IndexError),
        (-5, IndexError),
        ((0, 0, 0), IndexError),
        ((..., ...), IndexError),
        (None, TypeError),
        (1.0, TypeError),
        (True, TypeError),
        ([0, 1], TypeError),
        (slice(None, None, 2), ValueError),
    ],
    ids=str,
)
def test_no_other_index_is_guessed_at(traces, index, error):
    with pytest.raises(error):
        ttrace.open("reference").tensor("mlp.weight")[index]


def test_a_slice_reads_only_what_it_asks_for(tmp_path):
    # 32 MiB in two shards, of which the kernel is to bring in a few pages.
    values = numpy.zeros((2, 4096, 1024), "float32")
    values[:, :, 0] = numpy.arange(4096)
    whole = Tensor("large", values)
    record_run(tmp_path / "trace", [[whole.with_values(half)] for half in numpy.split(values, 2)], axes="tp=2")
    (tmp_path / "a.yaml").write_text("large:\n  output: {tp_dim: 0}\n")
    program = f"""
import os, numpy, ttrace
trace = ttrace.open({str(tmp_path / "trace")!r}, annotations={str(tmp_path / "a.yaml")!r})
def resident(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
before = resident()
part = trace.tensor("large")[1, 5:7, :3].numpy()
assert part.tolist() == [[5, 0, 0], [6, 0, 0]], part
assert resident() - before < 8, (before, resident())
whole = trace.tensor("large").numpy()
assert resident() - before >= 16, (before, resident())  # it would show
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(PACKAGE)})


def test_every_dtype_is_numpys_or_that_of_ml_dtypes(tmp_path):
    bits = numpy.arange(256, dtype="uint8")
    stored = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
    names = ["float64", "float32", "float16", *stored, "int8", "int16", "int32", "int64", "uint8"]
    tensors = [Tensor(name, bits.view(stored.get(name, name)), dtype=name) for name in names]
    tensors.append(Tensor("bool", numpy.array([True, False])))
    tensors.append(Tensor("none", numpy.zeros((0, 3), "float32")))
    trace = ttrace.open(record_run(tmp_path / "trace", [tensors]))
    for name in names:
        array = trace.tensor(name).numpy()
        assert array.dtype == (getattr(ml_dtypes, name) if name in stored else name)
        assert array.tobytes() == bits.tobytes()
    assert trace.tensor("bool").numpy().tolist() == [True, False]
    assert trace.tensor("none").numpy().shape == (0, 3)


def test_sums_of_ranks_terms_are_computed(tmp_path):
    values = numpy.arange(6, dtype="float32").reshape(2, 3)
    terms = [[Tensor("sum", values)], [Tensor("sum", 10 * values)]]
    (tmp_path / "a.yaml").write_text("sum:\n  output: {tp: partial}\n")
    trace = ttrace.open(record_run(tmp_path / "trace", terms, axes="tp=2"), annotations=tmp_path / "a.yaml")
    tensor = trace.tensor("sum")
    assert tensor.dtype == numpy.float64
    numpy.testing.assert_array_equal(tensor[1].numpy(), 11.0 * values[1])
    assert [(piece.rank, piece.term, piece.replica) for piece in tensor.pieces] == [(0, 0, 0), (1, 1, 0)]


def test_arrays_are_made_of_tensors_where_numpy_wants_one(traces):
    tensor = ttrace.open("reference").tensor("mlp", kind="output", microbatch=1)
    assert numpy.asarray(tensor).dtype == ml_dtypes.bfloat16
    assert numpy.asarray(tensor[0], dtype="float32").tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(ValueError, match="without a copy"):
        numpy.array(tensor, copy=False)


def test_tensors_come_in_order_of_execution_and_know_what_they_are(traces):
    trace = ttrace.open("candidate", annotations="gpt.yaml", reference=ttrace.open("reference"))
    assert [str(tensor) for tensor in trace] == [
        "mlp.weight param, iteration 0: float32[4, 6]",
        "attention output, iteration 0, micro-batch 0: float32[4, 6]",
        "mlp output, iteration 0, micro-batch 0: bfloat16[4, 6]",
        "attention output, iteration 0, micro-batch 1: float32[4, 6]",
        "mlp output, iteration 0, micro-batch 1: bfloat16[4, 6]",
    ]
    assert (trace.world_size, trace.axes, trace.complete, trace.left_out) == (2, {"tp": 2}, True, ())
    assert trace.run_id == "candidate"
    assert [tensor.microbatch for tensor in trace.tensors("attention")] == [0, 1]
    assert trace.tensor("mlp.weight").microbatch is None


def test_a_tensor_outlives_the_trace_that_it_is_of(traces):
    part = ttrace.open("candidate", annotations="gpt.yaml").tensor("mlp.weight")[1:3]
    numpy.testing.assert_array_equal(part.numpy(), model()[0].values[1:3])


def test_what_could_not_be_put_together_is_said(tmp_path):
    record_run(tmp_path / "trace", [halves(model())[0]], axes="")
    (tmp_path / "trace" / "rank-00000.h5").rename(tmp_path / "rank")
    directory = record_run(tmp_path / "two", halves(model()), axes="tp=2")
    (directory / "rank-00001.h5").unlink()
    (tmp_path / "a.yaml").write_text("mlp.weight:\n  tp_dim: 0\n")
    trace = ttrace.open(directory, annotations=tmp_path / "a.yaml")
    assert not trace.complete
    assert ("", "missing-rank") in [(finding.name, finding.reason) for finding in trace.left_out]
    assert ("mlp.weight", "omission") in [(finding.name, finding.reason) for finding in trace.left_out]
    with pytest.raises(ttrace.InputError, match="expected shards that make up a tensor"):
        trace.tensor("mlp.weight")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ttrace.open("nowhere"), "nowhere: "),
        (lambda: ttrace.open("reference", annotations="gtp.yaml"), "gtp.yaml"),
        (lambda: ttrace.open("reference").tensor("attentoin"), "expected something like attention"),
        (lambda: ttrace.open("reference").tensor("mlp", kind="outputs"), "kind 'outputs': no kind of tensors"),
        (lambda: ttrace.open("reference").tensor("mlp", iteration=3), "not of that kind, iteration and micro-batch"),
        (
            lambda: ttrace.open("reference").tensor("*"),
            "3 tensors match: mlp.weight param, attention output, mlp output;",
        ),
        (lambda: ttrace.check("reference", "nowhere"), "nowhere: "),
        (lambda: ttrace.check("reference", "reference"), "holds the same run as the reference"),
    ],
    ids=str,
)
def test_what_cannot_be_looked_at_is_an_exception_of_one_line(traces, call, message):
    with pytest.raises(ttrace.InputError) as error:
        call()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_names_that_are_no_text_are_shown_and_found(tmp_path):
    trace = ttrace.open(record_run(tmp_path / "trace", [[Tensor("a\u202eb\n", numpy.zeros(2, "float32"))]]))
    (name,) = trace.names
    assert name == "a\u202eb\n"
    assert trace.tensor(name).name == name


def test_presets_are_those_that_come_with_the_program(traces):
    with pytest.raises(ttrace.InputError, match="megatron_gpt"):
        ttrace.open("candidate", annotations="megatron_gtp")
    assert len(ttrace.open("reference", annotations="megatron_gpt")) == 5


def test_a_python_that_it_was_not_built_for_is_told_so(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "copy", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    command = [sys.executable, "-c", "import ttrace"]
    process = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path / "copy")})
    last = process.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ttrace: its extension module cannot be imported: No module named")
    assert "expected the Python that it was built for (-DTTRACE_PYTHON of CMake), and this is Python 3." in last


def test_importing_it_imports_no_other_package():
    program = "import sys, ttrace; assert not {'torch', 'numpy', 'ml_dtypes', 'ttrace_torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(PACKAGE)})
