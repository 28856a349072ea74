"""The Megatron-core adapter, against stand-ins with the names and signatures of megatron-core 0.11, which itself
needs CUDA to train."""

import numpy

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


def stage_1(collect, tmp_path, script, state):
    """What the second of two stages leaves behind."""
    core = tmp_path / "megatron" / "core"
    for path, text in {"parallel_state.py": state, "optimizer/optimizer.py": OPTIMIZER,
                       "pipeline_parallel/schedules.py": SCHEDULES}.items():  # fmt: skip
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
