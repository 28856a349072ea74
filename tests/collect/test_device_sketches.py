"""Sketches that PyTorch makes, as a device does, against those of libttrace."""

import json
import os

import h5py
import numpy
import pytest
import torch
from conftest import HERE, TTRACE, program, python, run

from ttrace_torch.device_sketches import fingerprint, sketch_of
from ttrace_torch.library import Kind, Pass, Recorder, Status, TensorId, TraceError
from ttrace_torch.tensors import dtype_of, view_of

pytestmark = pytest.mark.usefixtures("warm_programs")

LIBRARY = os.path.join(os.environ.get("TTRACE_BUILD", HERE.parent.parent / "build"), "lib", "libttrace.so")
LATE = HERE / "programs" / "late_copies.py"
TRAIN = HERE / "programs" / "wide.py"
SHAPES = [(512, 1024), (300, 1000), (3, 200, 520), (2, 5, 130, 300), (9, 8, 7, 3, 260)]


def record_as_a_device(recorder, tensor_id, tensor):
    edges = recorder.cell_edges(dtype_of(tensor), tensor.shape, "")
    sketch = sketch_of(tensor, edges)
    value = int.from_bytes(bytes(sketch[-8:].tolist()), "little")
    recorder.record_sketch(tensor_id, view_of(tensor)._replace(address=sketch.data_ptr(), strides=None), value)


class Trace:
    """Records each tensor by libttrace and, under `torch.` and its name, as PyTorch sketched it."""

    def __init__(self, directory):
        self._directory, self._shapes = directory, {}
        self.recorder = Recorder(LIBRARY, str(directory), run_id="run")

    def record(self, name, tensor):
        at_libttrace = TensorId(0, 0, 0, Pass.FORWARD, Kind.OUTPUT, name)
        self.recorder.record(at_libttrace, view_of(tensor), sketch=True)
        record_as_a_device(self.recorder, at_libttrace._replace(name=f"torch.{name}"), tensor)

    def close(self):
        """Name -> (cells, fingerprint)."""
        self.recorder.close(True)
        with h5py.File(self._directory / "rank-00000.h5") as file:
            shapes, text = file["ttrace/shapes"][()], file["ttrace/text"][()].tobytes()
            cells = file["tensors/0/0/forward/output/0"]
            found = {}
            for row in file["ttrace/index"][()]:
                name = text[row["name"] : row["name"] + row["name_length"]].decode()
                found[name] = cells[name][()].reshape(-1), shapes[row["shape"] + 2 * row["ndim"]]
                assert row["dtype"] & 192 == 192, name  # a sketch with a fingerprint
        return found


@pytest.fixture
def trace(tmp_path):
    return Trace(tmp_path)


def require_alike(found, dtype):
    error = {torch.float64: 1e-14, torch.float32: 1e-14}.get(dtype, 1e-6)
    for name in [name for name in found if not name.startswith("torch.")]:
        (ours, our_fingerprint), (theirs, their_fingerprint) = found[f"torch.{name}"], found[name]
        assert our_fingerprint == their_fingerprint, name
        scale = numpy.exp2(theirs["exponent"].astype("f8"))
        norm = numpy.sqrt(theirs["square"])[:, None]
        with numpy.errstate(over="ignore"):
            difference = (ours["sums"].astype("f8") - theirs["sums"]) * scale[:, None]
        assert (numpy.abs(difference) <= error * norm).all(), name
        assert numpy.allclose(ours["square"], theirs["square"], rtol=error, atol=0), name
        for field in ("largest", "nonfinite", "exponent"):
            assert (ours[field] == theirs[field]).all(), (name, field)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_cells_are_those_of_libttrace_to_rounding(trace, dtype):
    torch.manual_seed(0)
    for shape in SHAPES:
        trace.record(f"random{len(shape)}x{shape[-1]}", torch.randn(shape).to(dtype))
    x = torch.randn(512, 512).to(dtype)
    trace.record("transposed", x[:, :300].t())
    trace.record("every second", torch.randn(256, 1024).to(dtype)[:, ::2])
    broken = x.clone()
    broken[3, 5], broken[200, 300], broken[200, 301] = float("nan"), float("inf"), -float("inf")
    trace.record("not finite", broken)
    trace.record("zero", torch.zeros_like(x))
    trace.record("small", x * torch.finfo(dtype).smallest_normal)
    require_alike(trace.close(), dtype)


def test_cells_of_the_largest_numbers_have_an_exponent(trace):
    x = torch.full((512, 512), torch.finfo(torch.bfloat16).max, dtype=torch.bfloat16)
    x[:256] = -1e30
    trace.record("mask", x)
    found = trace.close()
    assert set(found["mask"][0]["exponent"]) == {0, 32}
    require_alike(found, torch.bfloat16)


def test_a_large_tensor_is_sketched_slab_by_slab(trace):
    torch.manual_seed(0)
    x = torch.randn(3000, 4000, dtype=torch.bfloat16)
    trace.record("rows", x)
    trace.record("columns", x.reshape(12, 250, 4000))
    require_alike(trace.close(), torch.bfloat16)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.neg_(),
        lambda x: x[:2].neg_(),
        lambda x: x[5, 7:8].neg_(),
        lambda x: x.copy_(x.flip(0)),
        lambda x: x.copy_(x.flip(1)),
        lambda x: x.copy_(x.roll(1, 0)),
        lambda x: x.view(torch.int16).bitwise_xor_(1),
        lambda x: x.view(torch.int16)[-1, -1:].add_(1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_changed_tensor_has_another_fingerprint(change, dtype):
    x = torch.randn(130, 260, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = fingerprint(x)
    with torch.no_grad():
        change(x)
    assert fingerprint(x) != before


def test_what_is_no_sketch_is_refused(trace):
    x = torch.zeros(512, 512)
    (edges, dtype), view = (trace.recorder.cell_edges(dtype_of(x), x.shape, ""), dtype_of(x)), view_of(x)
    sketch = sketch_of(x, edges)
    tensor_id = TensorId(0, 0, 0, Pass.FORWARD, Kind.OUTPUT, "x")
    sketch.view(-1)[: 152 * 2].view(torch.float64)[19] = float("nan")
    with pytest.raises(TraceError, match="cell 1 of its sketch is none") as raised:
        trace.recorder.record_sketch(tensor_id, view._replace(address=sketch.data_ptr()), 0)
    assert raised.value.status == Status.INVALID
    with pytest.raises(TraceError, match="recorded whole"):
        trace.recorder.record_sketch(tensor_id, view._replace(shape=(512, 8)), 0)
    with pytest.raises(TraceError, match="no cells"):
        trace.recorder.record_sketch(tensor_id, view._replace(address=0), 0)
    fragment = json.dumps({"fragment": {"whole": [512, 1024], "range": [0, 512 * 512]}})
    assert trace.recorder.cell_edges(dtype, (512 * 512,), fragment) is None
    assert trace.recorder.cell_edges(dtype, (512, 8), "") is None
    assert edges == (128, 128)


@pytest.mark.parametrize("change", [0, 1e-3])
def test_copies_that_a_device_and_a_host_sketched_are_held_to_their_bits(tmp_path, change):
    parameter = TensorId(0, -1, 0, Pass.FORWARD, Kind.PARAM, "linear.weight")
    weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(0)).bfloat16()
    copy = weight.clone()
    copy[3, 4] += change
    sides = {"reference": [weight], "candidate": [weight, copy]}
    for side, ranks in sides.items():
        for rank, tensor in enumerate(ranks):
            axes = {"axes": "dp=2"} if len(ranks) > 1 else {}
            recorder = Recorder(LIBRARY, str(tmp_path / side), run_id=side, rank=rank, world_size=len(ranks), **axes)
            if rank == 1:
                record_as_a_device(recorder, parameter, tensor)
            else:
                recorder.record(parameter, view_of(tensor), sketch=True)
            recorder.close(True)
    checked = run(
        [TTRACE, "check", "--reference", tmp_path / "reference", "--candidate", tmp_path / "candidate", "--json", "-"]
    )
    counts = json.loads(checked.stdout)["counts"]
    assert (counts["pass"], counts["fail"]) == ((0, 1) if change else (1, 0)), checked.stdout


# Programs.


@pytest.fixture
def sketched(collect):
    """sketched(*options, late=whether PyTorch makes the sketches) -> Collected"""

    def sketched(*options, late=False, arguments=(), code=0):
        command = python(LATE, TRAIN, *arguments) if late else program("wide", *arguments)
        collected = collect(*options, command=command)
        assert collected.code == code, collected
        return collected

    return sketched


def check(reference, candidate, *options):
    sides = ["--reference", reference.directory, "--candidate", candidate.directory, *options]
    checked = run([TTRACE, "check", *sides, "--json", "-"])
    return checked.returncode, json.loads(checked.stdout)


def test_a_check_takes_sketches_of_either_kind_for_those_of_one_run(sketched):
    whole, ours, theirs = sketched(), sketched("--sketch", late=True), sketched("--sketch")
    size = {each: sum(path.stat().st_size for path in each.directory.glob("*.h5")) for each in (whole, ours, theirs)}
    assert abs(size[ours] - size[theirs]) < 100 and size[ours] < size[whole] / 20
    for options in ([], ["-t", "default"]):
        for reference, as_before in ((whole, theirs), (theirs, sketched("--sketch"))):
            code, report = check(reference, ours, *options)
            expected_code, expected = check(reference, as_before, *options)
            assert (code, report["counts"]) == (expected_code, expected["counts"])
            assert report["counts"]["fail"] == 0 and report["counts"]["pass"] > 0
    wrong = sketched("--sketch", late=True, arguments=["wrong"])
    code, report = check(whole, wrong, "-t", "default")
    assert (code, report["root_cause"]["name"], report["root_cause"]["kind"]) == (1, "1", "output")


def test_a_second_run_is_held_against_sketches_of_a_device(sketched):
    first = sketched("--sketch", late=True)
    closer = sketched("--sketch", "--whole", "0", "--again", first.directory, late=True)
    assert any("tensors have the bits of" in line for line in closer.messages)
    again = sketched("--again", first.directory)  # elements against fingerprints
    assert any("tensors have the bits of" in line for line in again.messages)
    other = sketched("--sketch", "--again", first.directory, late=True, arguments=["other"], code=2)
    assert any("is not the run of" in line for line in other.messages)
