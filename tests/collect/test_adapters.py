"""What an adapter says of its framework arrives in the trace, whatever it says: a framework that is made up has all
that adapters are there for."""

import gc
import json
import shutil
import sys
import types
import weakref
from pathlib import Path

import numpy
import pytest
import torch
from conftest import HERE, TTRACE, Collected, ranks, run

import ttrace_torch
from ttrace_torch import patches
from ttrace_torch.adapters.deepspeed import DeepSpeed
from ttrace_torch.adapters.megatron_moe import MegatronExperts
from ttrace_torch.adapters.pipelining import Pipelining
from ttrace_torch.placements import part_of

MADE_UP = HERE / "programs" / "made_up"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of a collector that knows the made-up framework, by one file more."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(Path(ttrace_torch.__file__).parent, folder / "ttrace_torch")
    shutil.copy(MADE_UP / "made_up_adapter.py", folder / "ttrace_torch" / "adapters")
    (folder / "sitecustomize.py").write_text("import ttrace_torch\n")  # this collector, and not the program's
    return folder


@pytest.fixture(scope="module", params=["find", "groups"])
def made_up(request, package, tmp_path_factory):
    """The run of the made-up framework, where the framework finds the mesh, and where it knows groups of ranks."""
    directory = tmp_path_factory.mktemp(request.param) / "trace"
    command = [TTRACE, "collect", "-o", directory, "--iterations", "0-1", "--"]
    process = run([*command, *ranks(2, MADE_UP / "train.py", request.param)], environment={"PYTHONPATH": str(package)})
    collected = Collected(process, directory)
    assert collected.code == 0, collected
    collected.arrangement = request.param
    return collected


def provenance(made_up):
    return json.loads(made_up.rank().attributes["provenance"])


def test_the_made_up_framework_uses_all_that_an_adapter_can_override_and_is_asked_all_of_it(made_up):
    asked = json.loads(made_up.stdout)
    assert asked["overridden"] == asked["hooks"]
    lists = {"clipping", "backward", "checkpoints", "weight_backward", "steps", "gathering"}
    unasked = {"groups"} if made_up.arrangement == "find" else set()  # nobody asks for groups where the mesh is found
    assert set(asked["called"]) == set(asked["hooks"]) - lists - unasked


def test_the_mesh_is_the_one_that_it_finds_or_that_its_groups_make(made_up):
    axes = {file.attributes["axes"] for file in (made_up.rank(0), made_up.rank(1))}
    coordinates = [file.attributes["coordinates"] for file in (made_up.rank(0), made_up.rank(1))]
    name = "tp" if made_up.arrangement == "find" else "dp"
    assert [json.loads(text) for text in axes] == [[[name, 2]]]
    assert [json.loads(text) for text in coordinates] == [{name: 0}, {name: 1}]


def test_what_it_says_of_the_program_is_in_the_provenance(made_up):
    assert provenance(made_up)["parallelism"] == {"loss_scale": "2"}
    assert made_up.rank().attributes["compute_dtype"] == "float16"


def test_calls_that_it_makes_are_those_of_the_model_and_its_rehearsal_is_none(made_up):
    file = made_up.rank()
    assert {at[1] for at in file.all if at[0] == 0 and at[1] >= 0} == {0, 1}  # two micro-batches
    assert ("output", "(model)", 1) in file.tensors


def test_its_backward_is_one_and_shows_the_loss(made_up):
    tensors = made_up.rank().tensors
    for microbatch in (0, 1):
        assert tensors["scalar", "loss", microbatch] == tensors["output", "(model)", microbatch]


def test_its_checkpoints_run_the_same_call_again(made_up):
    file = made_up.rank()
    for call in ("twice", "twice#1"):
        first, again = (file.all[0, 1, 0, pass_, "input", call] for pass_ in ("forward", "recompute"))
        numpy.testing.assert_array_equal(first, again)


def test_gradients_that_it_computes_later_belong_to_the_micro_batch_that_it_names(made_up):
    tensors = made_up.rank().tensors
    for microbatch in (0, 1):
        gradient = tensors["grad_output", "late", microbatch].T @ tensors["input", "late", microbatch]
        numpy.testing.assert_allclose(tensors["param_grad", "late.weight", microbatch], gradient, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_a_module_is_that_of_what_its_output_is_a_copy_of(made_up):
    tensors = made_up.rank().tensors
    used_twice = tensors["grad_output", "copied", 0]
    numpy.testing.assert_allclose(
        tensors["grad_input", "copied", 0], used_twice @ tensors["param", "copied.weight", -1], rtol=1e-5, atol=1e-6
    )


def test_a_gradient_that_it_sums_later_is_a_part_along_its_axes(made_up):
    (mapping,) = {json.dumps(made_up.rank().mappings[0, 0, 0, "forward", "param_grad", "router.weight"])}
    part = {"axes": [{"axis": "tp", "size": 2, "placement": "partial"}], "shape": [2, 4]}
    assert json.loads(mapping) == (part if made_up.arrangement == "find" else None)


def test_what_a_rank_has_of_a_parameter_lies_where_it_says(made_up):
    for rank in (0, 1):
        mappings = made_up.rank(rank).mappings
        half = {"fragment": {"whole": [2, 2], "range": [2 * rank, 2 * rank + 2]}}
        assert mappings[0, -1, 0, "forward", "main_grad", "last.weight"] == half


def test_flat_parameters_are_those_in_them_and_get_gradients_where_they_are_gathered(made_up):
    for rank in (0, 1):
        file = made_up.rank(rank)
        assert not [name for *_, name in file.all if name == "flat.flat"]
        row = {"fragment": {"whole": [2, 4], "range": [4 * rank, 4 * rank + 4]}}
        assert file.mappings[0, -1, 0, "forward", "param", "flat.weight"] == row
        assert file.tensors["param_grad", "flat.weight", 1].shape == (2, 4)


def test_what_a_module_keeps_to_itself_is_recorded_as_its_own(made_up):
    tensors = made_up.rank().tensors
    numpy.testing.assert_array_equal(tensors["input", "router:bias", 0], tensors["param", "router.bias", -1])
    logits = numpy.exp(tensors["output", "router:logits", 0])
    numpy.testing.assert_allclose(
        tensors["output", "router", 0], logits / logits.sum(-1, keepdims=True), rtol=1e-5, atol=1e-6
    )
    numpy.testing.assert_array_equal(tensors["output", "router:scores", 0], tensors["output", "router", 0] + 1)


def test_experts_are_not_recorded_inside_nor_their_gradients_of_other_ranks_tokens(made_up):
    names = {(kind, name) for *_, kind, name in made_up.rank().all}
    assert ("output", "experts") in names and ("output", "experts.inside") not in names
    assert ("param_grad", "experts.inside.weight") in names and ("param_grad", "experts.weight") not in names
    (left_out,) = [each for each in provenance(made_up)["not_seen"] if "experts.weight" in json.dumps(each)]
    assert left_out["reason"] == "the gradient of the tokens that came to a rank, of whichever micro-batch"


def test_a_by_product_is_no_object_that_may_hold_tensors(made_up):
    assert "may hold tensors" not in made_up.process.stderr


def test_the_norm_is_the_one_that_it_clips_by_or_has_clipped_by(made_up):
    norms = {at[0]: float(value) for at, value in made_up.rank().all.items() if at[-1] == "grad_norm"}
    assert norms == {0: 2.0, 1: 1.0}  # given by keyword; the optimizer's, with its loss scale


def test_main_gradients_are_without_the_loss_scale_of_its_optimizer(made_up):
    file = made_up.rank()
    for iteration, scale in ((0, 1), (1, 4)):
        parts = [file.all[iteration, m, 0, "forward", "param_grad", "copied.weight"] for m in (0, 1)]
        main = file.all[iteration, -1, 0, "forward", "main_grad", "copied.weight"]
        numpy.testing.assert_allclose(main, sum(parts) / scale, rtol=1e-5, atol=1e-6)


# An adapter of the program's own, written as the class says.
CLIPPED = """
import sys
import types
import weakref
import torch
from ttrace_torch.adapters import Adapter, Clipping

name, place, way = sys.argv[1:]
framework = sys.modules["framework"] = types.ModuleType("framework")

def given(parameters, max_norm, length):
    for parameter in parameters:
        parameter.grad.mul_(min(1.0, max_norm / float(length)))

def returned(parameters, max_norm):
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in parameters]))
    given(parameters, max_norm, norm)
    return None if way == "nothing" else norm

setattr(framework, name, given if place == "argument" else returned)

class Framework(Adapter, module="framework"):
    clipping = [Clipping("framework", name, norm=place)]

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
model(torch.ones(2, 4)).sum().backward()
parameters = list(model.parameters())
norm = torch.tensor(6.0)  # of a bias of 2, and weights of 2, 2, 2, 2 with what other ranks have
if place == "result":
    getattr(framework, name)(parameters, 0.5)
elif way == "by keyword":
    getattr(framework, name)(parameters, max_norm=0.5, length=norm)
else:
    getattr(framework, name)(parameters, 0.5, norm)
optimizer.step()
"""


@pytest.mark.parametrize("name", ["clip_by_norm", "clip_grad_by_total_norm_fp32", "clip_grads_with_norm_"])
@pytest.mark.parametrize(
    "place, way, norm", [("argument", "by place", 6.0), ("argument", "by keyword", 6.0), ("result", "", 20**0.5)]
)
def test_the_norm_of_a_clipping_function_is_where_the_adapter_says_whatever_the_function_is_called(
    warm_programs, collect, script, name, place, way, norm
):
    collected = collect(command=script(CLIPPED, name, place, way))
    assert collected.code == 0, collected
    tensors = collected.rank().tensors
    assert tensors["scalar", "grad_norm", -1] == pytest.approx(norm)
    numpy.testing.assert_array_equal(tensors["main_grad", "weight", -1], [[2, 2, 2, 2]])  # before it was clipped


def test_a_clipping_function_without_the_norm_that_the_adapter_promises_is_named(warm_programs, collect, script):
    collected = collect(command=script(CLIPPED, "clip", "result", "nothing"))
    assert collected.code == 0, collected
    assert not [name for *_, name in collected.rank().all if name == "grad_norm"]
    assert any(
        "not recorded: grad_norm of 'clip', which should be its result; expected a tensor or a float, not NoneType"
        in message
        for message in collected.messages
    ), collected


class FP16_Optimizer:
    """What is asked of DeepSpeed's."""

    def __init__(self, parameters):
        self.fp16_groups = [parameters]
        self.fp32_groups_flat = [torch.cat([parameter.detach().float().reshape(-1) for parameter in parameters])]

    def destroy(self):
        """As its engine's does: the masters are left, the parameters are not."""
        self.fp16_groups = [[]]


@pytest.fixture
def deepspeed(monkeypatch):
    module = types.ModuleType("deepspeed.runtime.fp16.fused_optimizer")
    module.FP16_Optimizer = FP16_Optimizer
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return DeepSpeed()


def parameter_of(value):
    return torch.nn.Parameter(torch.full((3,), value, dtype=torch.float16))


def test_a_parameter_at_the_address_of_one_that_was_freed_does_not_get_its_master(deepspeed):
    freed = parameter_of(1.0)
    optimizer = FP16_Optimizer([freed])
    assert deepspeed.share(freed).master.tolist() == [1, 1, 1]
    optimizer.destroy()
    address = id(freed)
    del freed
    gc.collect()
    others = [parameter_of(2.0)]
    while id(others[-1]) != address and len(others) < 10000:  # mostly the first has it
        others.append(parameter_of(2.0))
    assert all(deepspeed.share(other) is None for other in others)  # no optimizer has them


def test_the_optimizer_of_an_engine_that_was_freed_is_not_kept_alive_and_that_of_the_next_one_is_found(deepspeed):
    first = FP16_Optimizer([parameter_of(1.0)])
    assert deepspeed.share(first.fp16_groups[0][0]).master.tolist() == [1, 1, 1]
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
    second = FP16_Optimizer([parameter_of(2.0)])
    assert deepspeed.share(second.fp16_groups[0][0]).master.tolist() == [2, 2, 2]


# Releases of frameworks that are not installed here, as far as adapters ask them.


@pytest.mark.parametrize("method", ["routed_experts_compute", "experts_compute", "forward"])
def test_the_ranks_whose_tokens_experts_get_are_recorded_by_whichever_method_calls_them(monkeypatch, method):
    class MoELayer:
        token_dispatcher = types.SimpleNamespace(config=None)

        def forward(self, hidden):
            return hidden

    class TopKRouter:
        def routing(self, logits):
            return logits

    setattr(MoELayer, method, lambda self, hidden: hidden + 1)
    module = types.ModuleType(MegatronExperts.module)
    module.MoELayer, module.TopKRouter = MoELayer, TopKRouter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    recorded = []
    try:
        MegatronExperts().record_inside(lambda member, _: recorded.append(member), lambda *_: None)
        assert getattr(MoELayer(), method)(1) == 2
        assert recorded == [".experts:sources"]
    finally:
        patches.take_back()


class _PipelineSchedule:
    """Divides gradients by the number of micro-batches as it is told; of some releases it cannot be told."""

    def __init__(self, **told):
        self._n_microbatches = 4
        vars(self).update(told)


@pytest.mark.parametrize(
    "told, said", [({}, {}), ({"scale_grads": False}, {}), ({"scale_grads": True}, {"loss_scale": "4"})]
)
def test_a_schedule_that_cannot_be_told_to_divide_gradients_does_not(monkeypatch, told, said):
    module = types.ModuleType("torch.distributed.pipelining.schedules")
    module._PipelineSchedule = _PipelineSchedule
    monkeypatch.setitem(sys.modules, module.__name__, module)
    schedule = _PipelineSchedule(**told)
    assert Pipelining().words(None, types.SimpleNamespace(axis_named=lambda _: None)) == said
    del schedule


@pytest.mark.parametrize("takes_option", [True, False])
def test_a_dtensor_is_distributed_by_the_module_of_its_class_whatever_that_is_called(monkeypatch, takes_option):
    module = types.ModuleType("torch.distributed._tensor_of_a_release")
    given = []
    if takes_option:
        module.distribute_tensor = lambda whole, mesh, placements, src_data_rank=0: given.append(src_data_rank)
    else:
        module.distribute_tensor = lambda whole, mesh, placements: given.append("no option")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    tensor = type("DTensor", (), {"__module__": module.__name__, "placements": (), "device_mesh": None})()
    part_of(torch.ones(2), tensor)
    assert given == [None if takes_option else "no option"]
