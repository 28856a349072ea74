"""ZeRO: what a rank's optimizer owns of a parameter is recorded with its place in it, and nothing else of it."""

import numpy
import pytest
from conftest import ranks

pytestmark = pytest.mark.usefixtures("warm_programs")

OWNER = """
import torch
from torch import nn
model = nn.Linear(3, 4)
model.other = nn.Parameter(torch.ones(2))
masters = []
for parameter, (begin, end) in ((model.weight, (5, 12)), (model.bias, (0, 0)), (model.other, (0, 2))):
    parameter.main_shard_range = begin, end
    parameter.main_grad = torch.zeros(end - begin)
    parameter.main_param = nn.Parameter(parameter.detach().flatten()[begin:end].clone())
    masters.append(parameter.main_param)
optimizer = torch.optim.SGD(masters, lr=1.0)
(model(torch.arange(3.0)) * torch.arange(4.0)).sum().backward()
model.weight.main_grad.copy_(model.weight.grad.flatten()[5:])
model.other.main_grad.fill_(7)
for parameter in model.parameters():
    parameter.main_param.grad = parameter.main_grad
optimizer.step()
"""


def test_main_gradients_and_deltas_are_the_owned_range_and_none_where_nothing_is_owned(collect, script):
    collected = collect(command=script(OWNER))
    assert collected.code == 0 and len(collected.messages) == 1, collected.process.stderr
    rank = collected.rank()
    gradient = numpy.outer(numpy.arange(4), numpy.arange(3)).astype("f4").flatten()[5:]
    for kind, values in (("main_grad", gradient), ("param_delta", -gradient)):
        assert rank.names(kind) == ["weight", "other"]
        assert numpy.allclose(rank.tensors[kind, "weight", -1], values)
        mapping = rank.mappings[0, -1, 0, "forward", kind, "weight"]
        assert mapping == {"fragment": {"whole": [4, 3], "range": [5, 12]}}
        assert rank.mappings[0, -1, 0, "forward", kind, "other"] == {"fragment": {"whole": [2], "range": [0, 2]}}
    assert rank.tensors["param", "weight", -1].shape == rank.tensors["param_after", "weight", -1].shape == (4, 3)
    assert rank.mappings[0, -1, 0, "forward", "param_after", "weight"] is None


REDUNDANCY = """
import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1.0)
model(torch.ones(2, 3)).sum().backward()
optimizer.step()
dist.destroy_process_group()
"""


def test_pytorchs_own_zero_optimizer_gives_every_rank_the_delta_of_each_parameter_after_its_broadcast(collect, script):
    collected = collect("--axes", "dp=2", command=ranks(2, script(REDUNDANCY)[-1]))
    assert collected.code == 0, collected.process.stderr
    of_ranks = [collected.rank(0).tensors, collected.rank(1).tensors]
    for name in ("0.weight", "0.bias", "1.weight", "1.bias"):
        for tensors in of_ranks:
            delta = tensors["param_delta", name, -1]
            assert numpy.allclose(delta, -tensors["main_grad", name, -1], atol=1e-6) and delta.any(), name
            after = tensors["param", name, -1] + delta
            assert numpy.allclose(after, tensors["param_after", name, -1]), name
