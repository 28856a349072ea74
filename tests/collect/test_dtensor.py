"""DTensors say themselves where they lie; the mapping that is recorded of them is the program's own, in the words of
the trace's axes."""

import numpy
import pytest
from conftest import TTRACE, Collected, ranks, run
from rebuild import rebuilt

pytestmark = pytest.mark.usefixtures("warm_programs")

# Four ranks, tp fastest. Each module of `tell` is given one tensor; each is `WHOLE`, 5 rows of 6, which nothing
# divides, or its first row.
PROGRAM = """
import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("DP_shard", "tp"))
flat = init_device_mesh("cpu", (4,))
rank = dist.get_rank()
WHOLE = torch.arange(30.0).reshape(5, 6)
TIED = torch.arange(36.0).reshape(6, 6)

def placed(mesh, *placements, whole=WHOLE):
    return distribute_tensor(whole.clone(), mesh, placements)

def packed():
    # Two blocks of two rows: a gate and an up projection, each split over tp.
    placement = _StridedShard(0, split_factor=2)
    local = WHOLE[:4].view(2, 2, 6)[:, rank % 2]
    return DTensor.from_local(local, mesh["tp"], [placement], shape=torch.Size((4, 6)), stride=(6, 1))

TENSORS = {
    "columns": placed(mesh, Replicate(), Shard(1)),
    "rows": placed(mesh, Shard(0), Shard(-2)),
    "submesh": placed(mesh["tp"], Shard(0)),
    "empty": placed(mesh["tp"], Shard(0), whole=WHOLE[:1]),
    "unnamed": placed(flat, Shard(0)),
    "terms": DTensor.from_local(WHOLE * (rank % 2 + 1) / 3, mesh["tp"], [Partial()]),
    "average": DTensor.from_local(WHOLE * (rank % 2 * 2), mesh["tp"], [Partial("avg")]),
    "largest": DTensor.from_local(WHOLE, mesh["tp"], [Partial("max")]),
    "packed": packed(),
}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tell = nn.ModuleDict({name: nn.Identity() for name in TENSORS})
        self.linear = nn.Linear(6, 5)
        with torch.no_grad():
            self.linear.weight.copy_(WHOLE)
            self.linear.bias.copy_(WHOLE[:, 0])

    def forward(self, x):
        for name, tensor in TENSORS.items():
            self.tell[name](tensor)
        return self.linear(x)

model = Model()
parallelize_module(model, mesh["tp"], {"linear": ColwiseParallel(use_local_output=False)})
fully_shard(model, mesh=mesh["DP_shard"])
tied = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
fully_shard(tied, mesh=mesh["DP_shard"])  # which takes the weights for two
tied[1].weight = tied[0].weight
with torch.no_grad():
    tied[0].weight.copy_(distribute_tensor(TIED, mesh["DP_shard"], [Shard(0)]))
optimizer = torch.optim.SGD([*model.parameters(), *tied.parameters()], lr=0.1)
for microbatch in range(2):
    y = model(torch.full((3, 6), 1.0 + microbatch + 10 * (rank // 2)))
    (y * y).sum().full_tensor().backward()
    tied(torch.full((1, 6), 1.0 + microbatch + 10 * (rank // 2))).sum().backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
dist.destroy_process_group()
"""
WHOLE = numpy.arange(30, dtype="f4").reshape(5, 6)


def train(directory, *options):
    path = directory / "program.py"
    path.write_text(PROGRAM)
    return Collected(
        run([TTRACE, "collect", "-o", directory / "trace", *options, "--", *ranks(4, path)]), directory / "trace"
    )


@pytest.fixture(scope="module")
def collected(tmp_path_factory, warm_programs):
    collected = train(tmp_path_factory.mktemp("dtensor"))
    assert collected.code == 0, collected.process.stderr
    return collected


def output(name):
    return (0, 0, 0, "forward", "output", f"tell.{name}")


def axis(name, placement, dim=None):
    return {"axis": name, "size": 2, "placement": placement, **({} if dim is None else {"dim": dim})}


def test_the_axes_are_the_meshs_and_micro_batches_follow_the_data_parallel_one(collected):
    rank = collected.rank(2)
    assert rank.attributes["axes"] == '[["tp",2],["dp_shard",2]]'
    assert rank.attributes["aliases"] == '{"dp":"dp_shard"}'
    assert rank.attributes["coordinates"] == '{"dp_shard":1,"tp":0}'


@pytest.mark.parametrize(
    "name, axes",
    [
        ("columns", [axis("dp_shard", "replicate"), axis("tp", "shard", 1)]),
        ("rows", [axis("dp_shard", "shard", 0), axis("tp", "shard", 0)]),
        ("submesh", [axis("tp", "shard", 0)]),
        ("empty", [axis("tp", "shard", 0)]),
        ("unnamed", [axis("dp_shard", "shard", 0), axis("tp", "shard", 0)]),
        ("terms", [axis("tp", "partial")]),
        ("average", [axis("tp", "mean")]),
        ("packed", [axis("tp", "shard", 0) | {"layout": "stacked", "blocks": [1, 1]}]),
    ],
)
def test_placements_are_recorded_in_the_words_of_the_axes(collected, name, axes):
    whole = WHOLE[: {"empty": 1, "packed": 4}.get(name)]
    ranks = [collected.rank(rank) for rank in range(4)]
    for rank in ranks:
        assert rank.mappings[output(name)] == {"axes": axes, "shape": list(whole.shape)}
    assert numpy.array_equal(rebuilt(ranks)[output(name)], whole)


def test_uneven_and_empty_parts_have_their_own_sizes(collected):
    ranks = [collected.rank(rank) for rank in range(4)]
    assert [rank.all[output("rows")].shape for rank in ranks] == [(2, 6), (1, 6), (1, 6), (1, 6)]
    assert [rank.all[output("empty")].shape for rank in ranks] == [(1, 6), (0, 6)] * 2
    assert [rank.all[output("unnamed")].shape for rank in ranks] == [(2, 6), (2, 6), (1, 6), (0, 6)]


def test_fsdp_splits_what_tensor_parallelism_has_left(collected):
    ranks = [collected.rank(rank) for rank in range(4)]
    identity = (0, -1, 0, "forward", "param", "linear.weight")
    for rank in ranks:
        # A strided shard: tp is the outer one, although the mesh has it last.
        assert rank.mappings[identity] == {
            "axes": [axis("tp", "shard", 0), axis("dp_shard", "shard", 0)],
            "shape": [5, 6],
        }
    assert [rank.all[identity].tolist() for rank in ranks] == [
        WHOLE[:2].tolist(),
        WHOLE[3:4].tolist(),
        WHOLE[2:3].tolist(),
        WHOLE[4:].tolist(),
    ]
    assert numpy.array_equal(rebuilt(ranks)[identity], WHOLE)


def test_gradients_of_gathered_parameters_are_those_of_each_micro_batch(collected):
    found = rebuilt([collected.rank(rank) for rank in range(4)])
    total = 0
    for microbatch, value in enumerate([1, 11, 2, 12]):  # two of each data parallel rank, interleaved
        x = numpy.full((3, 6), value, "f4")
        gradient = 2 * (x @ WHOLE.T + WHOLE[:, 0]).T @ x
        assert numpy.allclose(found[0, microbatch, 0, "forward", "param_grad", "linear.weight"], gradient, rtol=1e-5)
        total = total + gradient
    mean = total / 2  # which is what fully_shard does
    assert numpy.allclose(found[0, -1, 0, "forward", "main_grad", "linear.weight"], mean, rtol=1e-5)
    bias = found[0, -1, 0, "forward", "main_grad", "linear.bias"]
    norm = numpy.sqrt(numpy.square(mean.astype("f8")).sum() + numpy.square(bias.astype("f8")).sum())
    assert numpy.isclose(found[0, -1, 0, "forward", "scalar", "grad_norm"], norm, rtol=1e-5)


def test_gradients_of_a_parameter_that_was_tied_after_it_was_sharded_are_one(collected):
    found = rebuilt([collected.rank(rank) for rank in range(4)])
    tied = numpy.arange(36, dtype="f4").reshape(6, 6)
    total = 0
    for microbatch, value in enumerate([1, 11, 2, 12]):
        hidden = value * tied.sum(axis=1)  # what the first one returns
        gradient = numpy.tile(hidden, (6, 1)) + numpy.outer(tied.sum(axis=0), numpy.full(6, value))
        for name in ("0.weight", "1.weight"):
            assert numpy.allclose(found[0, microbatch, 1, "forward", "param_grad", name], gradient, rtol=1e-6)
        total = total + gradient
    assert numpy.allclose(found[0, -1, 1, "forward", "main_grad", "0.weight"], total / 2, rtol=1e-6)


def test_a_reduction_that_is_no_sum_or_mean_is_named_not_recorded(collected):
    assert output("largest") not in collected.rank(0).all
    expected = "ttrace: warning: ranks 0-3: not traceable: 'tell.largest' is a DTensor placed Partial(max)"
    assert expected in collected.messages


def test_modules_that_fully_shard_turned_into_others_keep_their_class(collected, tmp_path):
    import h5py

    with h5py.File(collected.directory / "rank-00000.h5") as file:
        text = file["ttrace/text"][()].tobytes()
    assert b"__main__.Model" in text and b"FSDPModel" not in text


def test_a_mesh_that_disagrees_with_the_axes_stops_the_recording_with_one_line(tmp_path):
    collected = train(tmp_path, "--axes", "dp_shard=2,tp=2")
    assert collected.code == 2
    told = [line for line in collected.messages if line.startswith("ttrace: rank 3: ")]
    assert told == [
        "ttrace: rank 3: --axes dp_shard=2,tp=2: the program's device mesh (DP_shard=2, tp=2) joins ranks 1, 3 in its "
        "dimension 'DP_shard'; expected an axis of that name that joins the same ranks"
    ]


def test_ranks_are_joined_by_an_axis_by_nested_axes_or_by_none():
    from ttrace_torch.coordinates import MeshPosition

    position = MeshPosition(5, 8, "tp=2,cp=2,dp=2,sp=tp", "")
    assert position.axes_joining([4, 5]) == [("tp", 2)]
    assert position.axes_joining([1, 3, 5, 7]) == [("dp", 2), ("cp", 2)]
    assert position.axes_joining([4, 6, 5, 7]) == [("tp", 2), ("cp", 2)]  # tp outermost
    assert position.axes_joining([5, 4]) == []  # in the other order
    assert position.axes_joining([1, 4]) == []
    assert position.axis_named("sp") == "tp" and position.axis_named("ep") is None
