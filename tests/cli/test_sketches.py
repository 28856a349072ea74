"""Traces that hold sketches of large tensors (`ttrace collect --sketch`): a right candidate is the same, and each kind
of damage is found, whichever side was sketched."""

import json
from dataclasses import replace

import h5py
import numpy
import pytest
from program import Program

from traces import Tensor, edit_index, record_run, seal_again

SHAPE = (512, 1024)
NOISE = 1e-5
ANNOTATIONS = """\
embedding:
  output: {tp_dim: 1}
layers.*.mlp:
  output: {}
layers.*.terms:
  output: {tp: partial}
layers.*.mlp.weight:
  tp_dim: 0
"""
CHECK = ("check", "--reference", "reference", "--candidate", "candidate", "-a", "a.yaml", "-t", "t.yaml")
SIDES = {"reference": (True, False), "candidate": (False, True), "both": (True, True)}


def model(seed=None):
    """Values of a run; with a seed, of a run that rounded otherwise."""
    random = numpy.random.default_rng(0)
    noise = numpy.random.default_rng(seed)

    def values(*shape):
        exact = random.standard_normal(shape)
        if seed is not None:
            exact = exact * (1 + NOISE * noise.standard_normal(shape))
        return exact.astype("float32")

    return [
        Tensor("embedding", values(*SHAPE)),
        Tensor("layers.0.mlp", values(*SHAPE)),
        Tensor("layers.0.terms", values(*SHAPE)),
        Tensor("loss", numpy.array(2.5, "float32"), kind="scalar"),
        Tensor("layers.0.mlp.weight", values(*SHAPE), kind="main_grad", microbatch=-1),
    ]


def shards(tensors):
    dims = {"embedding": 1, "layers.0.mlp.weight": 0}
    part = numpy.random.default_rng(1).random(SHAPE).astype("float32")

    def of_rank(tensor, rank):
        if tensor.name == "layers.0.terms":
            other = tensor.values * part
            return tensor.with_values(other if rank == 1 else tensor.values - other)
        if tensor.name not in dims:
            return tensor
        return tensor.with_values(numpy.split(tensor.values, 2, axis=dims[tensor.name])[rank])

    return [[of_rank(tensor, rank) for tensor in tensors] for rank in range(2)]


def sketched(tensors, sketch=True):
    return [replace(tensor, sketch=sketch) for tensor in tensors]


def damaged(name, damage):
    """The tensors of a candidate, of which `damage` changes one in place."""
    tensors = model(seed=9)
    for tensor in tensors:
        if tensor.name == name:
            damage(tensor.values)
    return tensors


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with references, whole and sketched, and tolerances of perturbed runs of the same kind."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "a.yaml").write_text(ANNOTATIONS)
    program = Program(folder)
    for sketch in (False, True):
        kind = "sketch" if sketch else "whole"
        record_run(folder / f"{kind}-reference", [sketched(model(), sketch)], run_id="reference")
        for seed in (1, 2, 3):
            provenance = json.dumps({"perturb_seed": seed})
            record_run(folder / f"{kind}-{seed}", [sketched(model(seed), sketch)], provenance=provenance)
        words = ["estimate-tolerance", "-o", f"{kind}.yaml", "--reference", f"{kind}-reference", "--perturbed"]
        program.reports(*words, *[f"{kind}-{seed}" for seed in (1, 2, 3)], code=0)
    return folder


@pytest.fixture
def check(runs, tmp_path):
    """Checks tensors of a whole model on two ranks; returns the report."""

    def run(tensors, sides, code, ranks=None):
        of_reference, of_candidate = SIDES[sides]
        kind = "sketch" if of_reference else "whole"
        (tmp_path / "a.yaml").write_text(ANNOTATIONS)
        (tmp_path / "t.yaml").write_text((runs / f"{kind}.yaml").read_text())
        (tmp_path / "reference").symlink_to(runs / f"{kind}-reference")
        ranks = ranks or shards(tensors)
        record_run(tmp_path / "candidate", [sketched(rank, of_candidate) for rank in ranks], axes="tp=2")
        return json.loads(Program(tmp_path).reports(*CHECK, "--json", "-", code=code))

    return run


@pytest.mark.parametrize("sides", SIDES)
def test_a_right_candidate_is_the_same(check, sides):
    report = check(model(seed=9), sides, 0)
    assert report["verdict"] == "same"
    assert report["sketched"].startswith("4 of 5 comparisons are of sketches")
    assert report["counts"]["pass"] == 5


def scaled(values):
    values *= numpy.float32(1.001)


def row_of_another(values):
    values[3] = values[4]


def empty_cell(values):
    values[128:256, 640:768] = 0


def rolled_rows(values):
    values[:] = numpy.roll(values, 128, axis=0)


def swapped_rows(values):
    values[[0, 1]] = values[[1, 0]]


def one_nan(values):
    values[5, 700] = numpy.nan


def one_large_element(values):
    values[5, 700] += 1


@pytest.mark.parametrize("name", ["embedding", "layers.0.mlp", "layers.0.terms", "layers.0.mlp.weight"])
@pytest.mark.parametrize(
    "damage", [scaled, row_of_another, empty_cell, rolled_rows, swapped_rows, one_nan, one_large_element]
)
def test_damage_is_found(check, name, damage):
    report = check(damaged(name, damage), "both", 1)
    assert [finding["name"] for finding in report["findings"]] == [name]


@pytest.mark.parametrize("sides", ["reference", "candidate"])
@pytest.mark.parametrize("damage", [scaled, empty_cell])
def test_damage_is_found_where_one_side_holds_elements(check, sides, damage):
    report = check(damaged("embedding", damage), sides, 1)
    assert [finding["name"] for finding in report["findings"]] == ["embedding"]


def test_the_cell_and_its_rank_are_named(check):
    (finding,) = check(damaged("embedding", empty_cell), "both", 1)["findings"]
    assert finding["ranks"] == [1]
    assert "worst cell is [128:256, 640:768], on rank 1" in finding["message"]


@pytest.mark.parametrize("sides", SIDES)
def test_a_sum_that_was_not_made_is_found(check, sides):
    # Each rank keeps its own part of what they should have added up.
    parts = shards([replace(tensor, name="layers.0.terms") for tensor in model(seed=9)[1:2]])
    ranks = shards(model(seed=9))
    for rank, part in zip(ranks, parts, strict=True):
        rank[1] = rank[1].with_values(part[0].values)
    (finding,) = check(None, sides, 1, ranks)["findings"]
    assert (finding["name"], finding["reason"]) == ("layers.0.mlp", "replicas-disagree")


@pytest.mark.parametrize("sides", SIDES)
def test_copies_that_disagree_are_found(check, sides):
    ranks = shards(model(seed=9))
    values = ranks[1][1].values.copy()
    values[200:210] *= numpy.float32(1.01)
    ranks[1][1] = ranks[1][1].with_values(values)
    (finding,) = check(None, sides, 1, ranks)["findings"]
    assert (finding["name"], finding["reason"]) == ("layers.0.mlp", "replicas-disagree")
    assert finding["ranks"] == [1]


def test_a_border_inside_a_cell_is_not_seen(check):
    ranks = shards(model(seed=9))
    whole = numpy.concatenate([rank[0].values for rank in ranks], axis=1)
    for rank, part in zip(ranks, numpy.split(whole, [448], axis=1), strict=True):
        rank[0] = rank[0].with_values(part)
    report = check(None, "candidate", 0, ranks)
    (finding,) = report["findings"]
    assert (finding["name"], finding["reason"]) == ("embedding", "not-seen-in-candidate")
    assert "cells of [128, 128]" in finding["message"] and "--whole" in finding["message"]


def test_without_tolerances_equal_sketches_of_equal_bytes_are_the_same(ttrace, tmp_path):
    record_run(tmp_path / "reference", [sketched(model())])
    record_run(tmp_path / "candidate", [sketched(model())])
    words = ("check", "--reference", "reference", "--candidate", "candidate")
    assert ttrace.reports(*words, code=0).startswith("same, as far as sketches show\n")


def test_without_tolerances_equal_sketches_of_other_shards_prove_nothing(ttrace, tmp_path):
    (tmp_path / "a.yaml").write_text(ANNOTATIONS)
    record_run(tmp_path / "reference", [sketched(model())])
    record_run(tmp_path / "candidate", [sketched(rank) for rank in shards(model())], axes="tp=2")
    report = json.loads(ttrace.reports(*CHECK[:-2], "--json", "-", code=1))
    reasons = {finding["name"]: finding["reason"] for finding in report["findings"]}
    assert reasons["embedding"] == "no-tolerance"


def test_other_tools_read_sketches(tmp_path):
    values = model()[0].values
    record_run(tmp_path / "trace", [sketched(model()[:1])])
    with h5py.File(tmp_path / "trace" / "rank-00000.h5") as file:
        cells = file["tensors/0/0/forward/output/0/embedding"][()]
    assert cells.shape == (4, 8) and cells["sums"].shape == (4, 8, 16)
    assert cells["square"].sum() == pytest.approx((values.astype(float) ** 2).sum())
    assert cells["largest"].max() == numpy.abs(values).max()
    assert (tmp_path / "trace" / "rank-00000.h5").stat().st_size < values.nbytes / 20


NEEDS_ELEMENTS = {
    "abft": ["abft", "trace"],
    "annotate": ["annotate", "trace"],
    "sdc": ["sdc", "--healthy", "trace", "--suspect", "trace"],
    "show": ["show", "trace", "embedding"],
    "export": ["export", "trace", "-o", "out.npz"],
}


@pytest.mark.parametrize("command", NEEDS_ELEMENTS)
def test_commands_that_need_elements_say_so(ttrace, tmp_path, command):
    record_run(tmp_path / "trace", [sketched(model())])
    assert "sketch" in ttrace.refuses(*NEEDS_ELEMENTS[command])


# what an index is made to say of the first tensor, and what the program says of that
HOSTILE = {
    "an unknown table of signs": ({"dtype": 64 + 2}, "dtype is out of range"),
    "a sketch of integers": ({"dtype": 128 + 10}, "a sketch of int64"),
    "a sketch that is too short": ({"bytes": 152}, "152 bytes for the sketch"),
    "more dimensions than it has": ({"ndim": 8}, ""),
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_sketch_is_refused(ttrace, tmp_path, lie):
    record_run(tmp_path / "trace", [sketched(model())])
    fields, message = HOSTILE[lie]
    path = tmp_path / "trace" / "rank-00000.h5"
    edit_index(path, 0, **fields)
    seal_again(path)
    assert message in ttrace.refuses("inspect", "trace")


def test_inspect_marks_the_tensors_that_are_sketches(ttrace, tmp_path):
    record_run(tmp_path / "trace", [sketched(model())])
    text = ttrace.reports("inspect", "trace", code=0)
    assert "rank 0            5 tensors, 4 as sketches" in text
    (line,) = [line for line in text.splitlines() if " embedding " in line]
    assert line.endswith("float32  [512, 1024], a sketch in cells of [128, 128]")
    (line,) = [line for line in text.splitlines() if " loss " in line]
    assert line.endswith("float32  []")
    (rank,) = json.loads(ttrace.reports("inspect", "trace", "--json", code=0))["ranks"]
    edges = {tensor["name"]: tensor["sketch"]["edges"] for tensor in rank["tensors"] if "sketch" in tensor}
    assert edges == {
        name: [128, 128] for name in ("embedding", "layers.0.mlp", "layers.0.terms", "layers.0.mlp.weight")
    }


@pytest.mark.parametrize("edge", [0, -128, 100, 1 << 40])
def test_hostile_edges_are_refused(ttrace, tmp_path, edge):
    record_run(tmp_path / "trace", [sketched(model())])
    path = tmp_path / "trace" / "rank-00000.h5"
    with h5py.File(path, "r+") as file:
        shapes = file["ttrace/shapes"][()]
        shapes[2] = edge
        file["ttrace/shapes"][...] = shapes
    seal_again(path)
    assert "the edges of its cells" in ttrace.refuses("inspect", "trace")


@pytest.mark.parametrize("sides", ["reference", "both"])
def test_a_sketch_of_nonsense_is_refused(check, runs, tmp_path, sides):
    tensors = sketched(model(seed=9)[:1])
    record_run(tmp_path / "trace", [tensors])
    path = tmp_path / "trace" / "rank-00000.h5"
    with h5py.File(path) as file:
        offset = file["tensors/0/0/forward/output/0/embedding"].id.get_offset()
    data = bytearray(path.read_bytes())
    data[offset : offset + 8] = b"\xff" * 8  # NaN
    path.write_bytes(data)
    record_run(tmp_path / "other", [tensors], run_id="other")
    program = Program(tmp_path)
    words = ["check", "--reference", "other", "--candidate", "trace"]
    assert "not those that were recorded" in program.refuses(*words)
    assert "is none" in program.refuses(*words, "--no-checksums")
