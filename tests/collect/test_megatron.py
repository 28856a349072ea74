"""The Megatron-core adapter, against stand-ins with the names and signatures of megatron-core 0.11, which itself
needs CUDA to train."""

import numpy
import pytest

pytestmark = pytest.mark.usefixtures("warm_programs")

STATE = """
def model_parallel_is_initialized(): return True
def get_tensor_model_parallel_world_size(): return 1
def get_context_parallel_world_size(): return 1
def get_data_parallel_world_size(): return 1
def get_pipeline_model_parallel_world_size(): return 2
def get_tensor_model_parallel_rank(): return 0
def get_context_parallel_rank(): return 0
def get_data_parallel_rank(): return 0
def get_pipeline_model_parallel_rank(): return 1
"""
EXPERTS = """
def get_expert_tensor_parallel_world_size(): return 1
def get_expert_model_parallel_world_size(): return 1
def get_expert_data_parallel_world_size(): return 1
def get_expert_tensor_parallel_rank(): return 0
def get_expert_model_parallel_rank(): return 0
def get_expert_data_parallel_rank(): return 0
"""
OPTIMIZER = """
def clip_grad_by_total_norm_fp32(parameters, max_norm, total_norm, use_decoupled_grad=False):
    for parameter in parameters:
        parameter.grad.mul_(max_norm / total_norm)
"""
SCHEDULES = """
import torch
def custom_backward(output, grad_output):
    gradient = torch.ones_like(output) if grad_output is None else grad_output
    torch.autograd.Variable._execution_engine.run_backward((output,), (gradient,), False, False, (), True, True)
"""
TRAIN = """
import torch
import megatron.core.parallel_state
from megatron.core.optimizer import optimizer as theirs
from megatron.core.pipeline_parallel import schedules
model = torch.nn.Linear(3, 1, bias=False)
model.weight.main_grad = torch.zeros(1, 3)
model.weight.main_param = torch.nn.Parameter(model.weight.detach().clone())
optimizer = torch.optim.SGD([model.weight.main_param], lr=0.1)
for freed in (False, True):
    output = model(torch.ones(2, 3))
    if not freed:
        schedules.custom_backward(output.mean(), None)
    else:
        output.data = torch.empty(1)
        schedules.custom_backward(output, torch.ones(2, 1))
    model.weight.main_grad += model.weight.grad
    model.weight.grad = None
model.weight.main_param.grad = model.weight.main_grad
theirs.clip_grad_by_total_norm_fp32([model.weight.main_param], 0.5, 10.0)
optimizer.step()
"""

# Its constructor gives each parameter its part; here rank 1 of 2 has the last half of the buffer [weight, bias, gain],
# 6 + 2 + 4 elements: nothing of the weight, all of the bias and, an fp32 parameter, of the gain.
DISTRIBUTED_OPTIMIZER = """
from types import SimpleNamespace
import torch
class Range:
    def __init__(self, start, end):
        self.start, self.end = start, end
class DistributedOptimizer:
    def __init__(self, whole, fp32, ranges):
        self.buffers = [SimpleNamespace(param_index_map=dict.fromkeys([*whole, *fp32]))]
        self.gbuf_ranges, self.model_param_gbuf_map, self._parts = [], {}, {}
        for parameter, (start, end) in ranges.items():
            self.model_param_gbuf_map[parameter] = (0, None, 0)
            self._parts[parameter] = {"param": Range(start, end)}
        for parameter in whole:
            parameter.main_param = None
            if parameter in ranges:
                start, end = ranges[parameter]
                parameter.main_param = parameter.detach().float().view(-1)[start:end].clone()
            parameter.main_param_sharded = True
        self.model_fp32_groups = [fp32]
        self.shard_fp32_groups = [[each.view(-1)[slice(*ranges[each])] for each in fp32]]
    def _get_model_param_range_map(self, param):
        return self._parts[param]
"""
TRAIN_SHARDED = """
import torch
import megatron.core.parallel_state
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
model = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
model.gain = torch.nn.Parameter(torch.ones(4))
for parameter in model.parameters():
    parameter.main_grad = torch.zeros(parameter.shape)
weight, bias, gain = model.weight, model.bias, model.gain
optimizer = DistributedOptimizer([weight, bias], [gain], {bias: (1, 2), gain: (0, 4)})
masters = [bias.main_param, optimizer.shard_fp32_groups[0][0]]
inner = torch.optim.SGD(masters[:1], lr=0.5)
inner.param_groups[0]["params"] = masters  # as it does, where one is a view
model(torch.ones(2, 3, dtype=torch.bfloat16)).float().sum().backward()
bias.main_grad.copy_(torch.tensor([float("nan"), 4.0]))  # the first element is another rank's, not reduced here
gain.main_grad.copy_(torch.arange(4.0))
masters[0].grad, masters[1].grad = bias.main_grad[1:], gain.main_grad.view(-1)
with torch.no_grad():
    inner.step()
"""


def test_what_this_rank_owns_under_the_distributed_optimizer_comes_from_megatron(collect, tmp_path, script):
    core = tmp_path / "megatron" / "core"
    (core / "optimizer").mkdir(parents=True)
    (core / "parallel_state.py").write_text(STATE)
    (core / "optimizer" / "distrib_optimizer.py").write_text(DISTRIBUTED_OPTIMIZER)
    collected = collect(command=script(TRAIN_SHARDED), environment={"WORLD_SIZE": "2", "RANK": "1"})
    rank = collected.rank(1)
    assert rank.complete, collected.process.stderr
    assert [line for line in collected.messages if "warning" in line] == []
    for kind, bias, gain in (("main_grad", [4], [0, 1, 2, 3]), ("param_delta", [-2], [0, -0.5, -1, -1.5])):
        assert sorted(rank.names(kind)) == ["bias", "gain"]
        assert numpy.array_equal(rank.tensors[kind, "bias", -1], numpy.array(bias, "f4"))
        assert numpy.array_equal(rank.tensors[kind, "gain", -1], numpy.array(gain, "f4"))
        places = [rank.mappings[0, -1, 0, "forward", kind, name] for name in ("bias", "gain")]
        assert places == [{"fragment": {"whole": [2], "range": [1, 2]}}, {"fragment": {"whole": [4], "range": [0, 4]}}]
    assert len(rank.names("param_after")) == 3


def stage_1(collect, tmp_path, script, state):
    """What the second of two stages leaves behind."""
    core = tmp_path / "megatron" / "core"
    for path, text in {
        "parallel_state.py": state,
        "optimizer/optimizer.py": OPTIMIZER,
        "pipeline_parallel/schedules.py": SCHEDULES,
    }.items():
        (core / path).parent.mkdir(parents=True, exist_ok=True)
        (core / path).write_text(text)
    command = script(TRAIN)
    collected = collect(command=command, environment={"WORLD_SIZE": "2", "RANK": "1"})
    assert collected.code == 2  # the other stage is missing here
    return collected.rank(1)


def test_the_groups_of_the_experts_are_a_second_factoring_of_the_ranks(collect, tmp_path, script):
    rank = stage_1(collect, tmp_path, script, STATE + EXPERTS)
    assert rank.attributes["axes"] == '[["tp",1],["cp",1],["dp",1],["pp",2]]'
    assert rank.attributes["views"] == '[[["etp",1],["ep",1],["edp",1],["pp",2]]]'
    assert rank.attributes["coordinates"] == '{"cp":0,"dp":0,"edp":0,"ep":0,"etp":0,"pp":1,"tp":0}'


def test_coordinates_main_gradients_before_clipping_and_the_loss_come_from_megatron(collect, tmp_path, script):
    rank = stage_1(collect, tmp_path, script, STATE)
    assert rank.attributes["coordinates"] == '{"cp":0,"dp":0,"pp":1,"tp":0}'
    assert rank.attributes["aliases"] == '{"sp":"tp"}'
    assert rank.attributes["views"] == "[]"
    # 1 a column from the mean, 2 from the sum; what the step used is 0.05 of that.
    assert numpy.array_equal(rank.tensors["main_grad", "weight", -1], numpy.full((1, 3), 3, "f4"))
    assert rank.tensors["scalar", "grad_norm", -1] == 10
    assert numpy.allclose(rank.tensors["param_delta", "weight", -1], -0.1 * 0.05 * 3)
    assert [identity[1] for identity in rank.all if identity[5] == "loss"] == [0]
