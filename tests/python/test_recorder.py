"""`ttrace.Recorder` and the recorder of JAX's meshes: what a program says of its tensors is what the trace holds."""

import math
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy
import pytest
from conftest import PACKAGE

import ttrace
from ttrace.jax import MeshRecorder, Taps

WEIGHT = numpy.arange(24, dtype="float32").reshape(4, 6)


def record_ranks(directory, parts, **placement):
    """A trace of as many ranks as there are parts of a weight."""
    for rank, part in enumerate(parts):
        run = dict(rank=rank, world_size=len(parts), axes=f"tp={len(parts)}", run_id=directory.name)
        with ttrace.Recorder(directory, **run) as recorder:
            recorder.record("mlp.weight", part, kind="param", **placement)
    return ttrace.open(directory)


def test_what_was_recorded_is_there(tmp_path):
    import ml_dtypes

    with ttrace.Recorder(tmp_path / "trace", compute_dtype="bfloat16") as recorder:
        recorder.record("mlp.weight", WEIGHT, kind="param")
        recorder.record("mlp", WEIGHT.T.astype(ml_dtypes.bfloat16), microbatch=1, module_class="Mlp")
        recorder.record("loss", 2.5, kind="scalar")
    trace = ttrace.open(tmp_path / "trace")
    assert trace.names == ["mlp.weight", "mlp", "loss"]
    assert numpy.array_equal(trace.tensor("mlp.weight", kind="param").numpy(), WEIGHT)
    output = trace.tensor("mlp", microbatch=1)
    assert (str(output.dtype), output.shape) == ("bfloat16", (6, 4))
    assert numpy.array_equal(output.numpy().astype("float32"), WEIGHT.T)
    assert trace.tensor("loss", kind="scalar").numpy() == 2.5


@pytest.mark.parametrize(
    ("parts", "placement"),
    [
        (numpy.split(WEIGHT, 2), dict(axes={"tp": 0})),
        (numpy.split(WEIGHT, 2, axis=1), dict(axes={"tp": -1}, shape=(4, 6))),
        ([WEIGHT, WEIGHT], dict(axes={"tp": "replicate"})),
        ([WEIGHT - 1, numpy.ones_like(WEIGHT)], dict(axes={"tp": "partial"})),
    ],
)
def test_ranks_say_where_their_parts_lie(tmp_path, parts, placement):
    trace = record_ranks(tmp_path / "trace", parts, **placement)
    assert numpy.array_equal(trace.tensor("mlp.weight", kind="param").numpy(), WEIGHT)


def test_a_part_may_be_said_by_its_start(tmp_path):
    for rank, start in enumerate([0, 3]):
        run = dict(rank=rank, world_size=2, axes="tp=2", run_id="run")
        with ttrace.Recorder(tmp_path / "trace", **run) as recorder:
            rows = WEIGHT[start : start + 3]
            slices = [((0, 0), (start, 0), rows.shape)]
            recorder.record("mlp.weight", rows, kind="param", slices=slices, shape=(4, 6))
    weight = ttrace.open(tmp_path / "trace").tensor("mlp.weight", kind="param")
    assert numpy.array_equal(weight.numpy(), WEIGHT)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (dict(values=WEIGHT.astype("complex64")), "mlp: a tensor of dtype complex64"),
        (dict(values=numpy.zeros([1] * 9)), "mlp: a tensor of 9 dimensions"),
        (dict(values=WEIGHT, kind="outputs"), "mlp: kind 'outputs'; expected one of input, output"),
        (dict(values=WEIGHT, axes={"tensor": 0}), "mlp: record('mlp'): 'tensor' is not an axis of the trace"),
        (dict(values=WEIGHT, slices=[]), "mlp: record('mlp'): slices; expected with them the shape"),
    ],
)
def test_what_a_trace_cannot_hold_is_refused(tmp_path, arguments, said):
    recorder = ttrace.Recorder(tmp_path / "trace", world_size=2, axes="tp=2", run_id="run")
    with pytest.raises(ttrace.InputError) as refusal:
        recorder.record("mlp", **arguments)
    assert str(refusal.value).startswith(said)


def test_a_tensor_is_recorded_once_and_before_the_end(tmp_path):
    recorder = ttrace.Recorder(tmp_path / "trace")
    recorder.record("mlp", WEIGHT)
    with pytest.raises(ttrace.InputError, match="mlp"):
        recorder.record("mlp", WEIGHT)
    recorder.close()
    with pytest.raises(ttrace.InputError, match="closed"):
        recorder.record("mlp", WEIGHT, microbatch=1)


def test_a_block_that_raises_leaves_no_whole_trace(tmp_path):
    with pytest.raises(ZeroDivisionError), ttrace.Recorder(tmp_path / "trace") as recorder:
        recorder.record("mlp", WEIGHT / 1)
        1 / 0  # noqa: B018 (for what it raises)
    with ttrace.Recorder(tmp_path / "whole") as recorder:
        recorder.record("mlp", WEIGHT)
    report = ttrace.check(tmp_path / "trace", tmp_path / "whole")
    assert (report.verdict, report.findings[0].reason) == ("could-not-look", "incomplete-rank")


def test_what_is_left_out_by_design_is_not_missing(tmp_path):
    for name, partial in (("reference", ""), ("candidate", "the dumper knows no gradients")):
        with ttrace.Recorder(tmp_path / name, partial=partial) as recorder:
            recorder.record("mlp", WEIGHT)
            if not partial:
                recorder.record("mlp", WEIGHT, kind="grad_output")
    report = ttrace.check(tmp_path / "candidate", tmp_path / "reference")
    assert report.same and "the dumper knows no gradients" in str(report)
    assert ttrace.check(tmp_path / "reference", tmp_path / "candidate").counts.missing == 0


def sgd_step(directory, learning_rate, said):
    with ttrace.Recorder(directory) as recorder:
        gradient, rate = numpy.ones_like(WEIGHT) / 3, numpy.float32(learning_rate)
        after = WEIGHT - rate * gradient
        recorder.record("mlp", WEIGHT)
        for kind, values in dict(
            param=WEIGHT, main_grad=gradient, param_delta=-rate * gradient, param_after=after
        ).items():
            recorder.record("weight", values, kind=kind)
        recorder.optimizer_step("torch.optim.sgd.SGD", ["weight"], {"lr": said}, step=1)


def test_the_step_that_a_program_says_is_computed_again(tmp_path):
    sgd_step(tmp_path / "reference", 0.1, said=0.1)
    sgd_step(tmp_path / "candidate", 0.1, said=0.1)
    steps = ttrace.check(tmp_path / "candidate", tmp_path / "reference").optimizer_steps
    assert (steps.updates, steps.updates_checked) == (1, 1)
    sgd_step(tmp_path / "wrong", 0.1, said=0.2)
    report = ttrace.check(tmp_path / "wrong", tmp_path / "reference")
    assert (report.verdict, report.findings[0].reason) == ("different", "options-differ")


def test_a_step_whose_options_are_not_finite_is_recorded(tmp_path):
    sgd_step(tmp_path / "reference", 0.1, said=0.1)
    sgd_step(tmp_path / "candidate", 0.1, said=math.inf)
    text = str(ttrace.check(tmp_path / "candidate", tmp_path / "reference"))
    assert "1 update not checked: option 'lr' of its optimizer was not recorded" in text


PROGRAM = """\
import sys
import numpy
import ttrace

with ttrace.Recorder(compute_dtype="float32", device="cpu") as recorder:
    for iteration in range(3):
        x = numpy.linspace(1, 2, 4096, dtype="float32").reshape(64, 64)
        if "forget" not in sys.argv:
            x = x * recorder.factors("embedding", x.shape, iteration=iteration)
        recorder.record("embedding", x, iteration=iteration)
        recorder.record("mlp", x * numpy.float32(3), iteration=iteration)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Runs `ttrace` with these arguments, and the program after them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(*arguments, words=()):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        command = [os.environ["TTRACE_PROGRAM"], *arguments, "--", sys.executable, "program.py", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)

    return run


def test_commands_say_what_a_recorder_records(program):
    process = program("estimate-tolerance", "--reference", "reference", "--iterations", "1-2", "-o", "tolerance.yaml")
    assert process.returncode == 0, process.stderr
    trace = ttrace.open("reference")
    assert {tensor.iteration for tensor in trace} == {1, 2}
    seeds = [ttrace.open(f"tolerance.runs/perturbed-{n}").provenance["perturb_seed"] for n in (1, 2)]
    assert seeds == [1, 2]
    perturbed = ttrace.open("tolerance.runs/perturbed-1").tensor("embedding", iteration=1).numpy()
    moved = numpy.abs(perturbed / trace.tensor("embedding", iteration=1).numpy() - 1)
    assert 0 < moved.max() <= 1.5 * 2.0**-23
    assert program("collect", "-o", "candidate", "--iterations", "1-2").returncode == 0
    assert ttrace.check("candidate", "reference", tolerance="tolerance.yaml").same


def test_a_program_that_perturbs_nothing_is_found_out(program):
    process = program("collect", "-o", "perturbed", "--perturb", "1", words=["forget"])
    assert process.returncode != 0
    assert "nothing was perturbed; expected a program that multiplies by `factors`" in process.stderr
    assert program("collect", "-o", "plain", words=["forget"]).returncode == 0


def test_without_a_command_there_must_be_a_directory(monkeypatch):
    monkeypatch.delenv("TTRACE_CONFIG", raising=False)
    assert not ttrace.is_collected()
    with pytest.raises(ttrace.InputError, match="no directory; expected one, or a program that `ttrace collect` runs"):
        ttrace.Recorder()


# What the recorder asks of JAX's objects. tools/frameworks/jax has the real ones.


class Mesh:
    def __init__(self, **shape):
        self.shape, self.axis_names = shape, tuple(shape)
        devices = [SimpleNamespace(process_index=0, platform="cpu") for _ in range(numpy.prod(list(shape.values())))]
        self.local_devices = [Device(device) for device in devices]
        self.devices = numpy.array(self.local_devices, dtype=object).reshape(tuple(shape.values()))


class Device:
    def __init__(self, facts):
        self.process_index, self.platform = facts.process_index, facts.platform


def sharded(mesh, values, spec, copies=None):
    """What `jax.device_put` makes of `values`; `copies`: by device, what it holds instead."""
    shards = []
    for index, device in zip(numpy.ndindex(mesh.devices.shape), mesh.devices.flat, strict=True):
        part = values
        for dim, entry in enumerate(spec):
            for axis in (entry,) if isinstance(entry, str) else entry or ():
                place = mesh.axis_names.index(axis)
                part = numpy.split(part, mesh.devices.shape[place], axis=dim)[index[place]]
        shards.append(SimpleNamespace(device=device, data=(copies or {}).get(index, part)))
    sharding = SimpleNamespace(spec=spec, mesh=mesh, device_set=set(mesh.local_devices))
    return SimpleNamespace(sharding=sharding, shape=values.shape, addressable_shards=shards)


@pytest.mark.parametrize(
    "spec",
    [
        (),
        (None, None),
        ("data", "model"),
        ("model", "data"),
        (None, "model"),
        (("data", "model"),),
        (("model", "data"), None),
    ],
)
def test_a_mesh_has_a_rank_for_each_device(tmp_path, spec):
    mesh, values = Mesh(data=2, model=3), numpy.arange(72.0, dtype="float32").reshape(12, 6)
    with MeshRecorder(mesh, tmp_path / "trace") as recorder:
        recorder.record("mlp", sharded(mesh, values, spec))
        recorder.record("ids", numpy.arange(5), kind="input")
    trace = ttrace.open(tmp_path / "trace")
    assert (trace.world_size, trace.axes) == (6, {"model": 3, "data": 2})
    assert numpy.array_equal(trace.tensor("mlp").numpy(), values)
    assert numpy.array_equal(trace.tensor("ids", kind="input").numpy(), numpy.arange(5))


def test_copies_that_differ_are_seen(tmp_path):
    mesh, values = Mesh(model=2), numpy.arange(1024.0, dtype="float32").reshape(32, 32)
    for name, copies in (("candidate", {(1,): values + 1}), ("correct", None)):
        with MeshRecorder(mesh, tmp_path / name) as recorder:
            recorder.record("mlp", sharded(mesh, values, (), copies))
    with ttrace.Recorder(tmp_path / "reference") as recorder:
        recorder.record("mlp", values)
    report = ttrace.check(tmp_path / "candidate", tmp_path / "reference")
    assert (report.verdict, report.findings[0].reason) == ("different", "replicas-disagree")
    assert ttrace.check(tmp_path / "correct", tmp_path / "reference").same


def test_an_array_of_another_mesh_is_refused(tmp_path):
    mesh, other = Mesh(data=2), Mesh(data=2)
    recorder = MeshRecorder(mesh, tmp_path / "trace")
    with pytest.raises(ttrace.InputError, match="mlp: sharded as .*; expected a NamedSharding of the mesh"):
        recorder.record("mlp", sharded(other, WEIGHT, ("data",)))


def test_taps_hand_out_values_in_order_and_add_probes():
    taps = Taps({"second": 10})
    assert taps("first", 1) + taps("second", 2) == 13
    assert list(taps.values.items()) == [("first", 1), ("second", 12)]


class Length(numpy.ndarray):
    """An array with a unit."""


def test_arrays_that_are_more_than_their_values_are_refused_by_name(tmp_path):
    masked = numpy.ma.masked_greater(WEIGHT, 3)
    with ttrace.Recorder(tmp_path / "trace") as recorder:
        for name, values, what in (
            ("masked", masked, "a MaskedArray"),
            ("list of masked", [masked, WEIGHT], "a MaskedArray"),
            ("unit", WEIGHT.view(Length), "a Length"),
        ):
            with pytest.raises(ttrace.InputError) as refused:
                recorder.record(name, values)
            assert str(refused.value) == f"{name}: {what}, of which a trace would hold the plain values alone"
        recorder.record("filled", masked.filled(0))
        recorder.record("matrix", numpy.asmatrix(WEIGHT))
        numpy.save(tmp_path / "mapped.npy", WEIGHT)
        recorder.record("mapped", numpy.load(tmp_path / "mapped.npy", mmap_mode="r"))
    assert ttrace.open(tmp_path / "trace").names == ["filled", "matrix", "mapped"]


def test_subclasses_of_tensors_are_refused_by_name(tmp_path):
    torch = pytest.importorskip("torch")

    class Scaled(torch.Tensor):
        pass

    with ttrace.Recorder(tmp_path / "trace") as recorder:
        with pytest.raises(ttrace.InputError, match="^scaled: a Scaled, of which a trace would hold the plain values"):
            recorder.record("scaled", torch.ones(3).as_subclass(Scaled))
        recorder.record("plain", torch.ones(3))
        recorder.record("parameter", torch.nn.Parameter(torch.ones(3), requires_grad=False), kind="param")


def test_arguments_of_another_type_are_one_line(tmp_path):
    with ttrace.Recorder(tmp_path / "trace") as recorder:
        for name, arguments, text in (
            (3, {}, "record(): name is of type int; expected str"),
            ("a", {"kind": 3}, "record(): kind is of type int; expected str"),
            ("a", {"iteration": "0"}, "record(): iteration is of type str; expected int"),
            ("a", {"chunk": 1.5}, "record(): chunk is of type float; expected int"),
        ):
            with pytest.raises(TypeError) as refused:
                recorder.record(name, WEIGHT, **arguments)
            assert str(refused.value) == text
        recorder.record("a", WEIGHT, iteration=numpy.int64(1))
    trace = ttrace.open(tmp_path / "trace")
    for call in (
        lambda: trace.tensors(3),
        lambda: trace.tensor("a", iteration="1"),
        lambda: trace.tensors("a", iteration=2**70),
        lambda: ttrace.open(tmp_path / "trace", axes=3),
        lambda: ttrace.estimate_tolerance("a", ["b"], "c", margin="3"),
    ):
        with pytest.raises(TypeError, match=r"^\w+\(\): arguments of the types .*; expected .*: ") as refused:
            call()
        assert "\n" not in str(refused.value) and "_core" not in str(refused.value)
