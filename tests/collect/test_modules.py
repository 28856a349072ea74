"""Arguments and results of all shapes, and where a module stands."""

import numpy
import pytest
import torch

pytestmark = pytest.mark.usefixtures("warm_programs")

TRAIN = """
import torch
from torch import nn
{model}
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    {step}
    optimizer.step()
"""


def names(collect, script, model, step, kind):
    collected = collect(command=script(TRAIN.format(model=model, step=step)))
    assert collected.code == 0, collected.process.stderr
    return collected.rank().names(kind)


INNER = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
    def forward(self, {arguments}):
        {body}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        {call}
"""


def test_keyword_arguments_are_recorded_by_their_names(collect, script):
    model = INNER.format(
        arguments="x, mask=None, scale=None",
        body="return x * self.weight * mask * scale[0]",
        call="return self.inner(x, scale=[torch.tensor(2.0)], mask=torch.ones(3))",
    )
    found = names(collect, script, model, "model(torch.ones(2, 3)).sum().backward()", "input")
    assert found == ["(model)", "inner", "inner:scale.0", "inner:mask"]


@pytest.mark.parametrize(
    "call, name",
    [
        ("self.inner(x)", "inner"),
        ("self.inner(x, mask=None)", "inner"),
        ("self.inner(x, None)", "inner:0"),
        ("self.inner(x=x)", "inner:x"),
        ("self.inner(x=x, mask=None)", "inner:x"),
        ("self.inner(None, mask=x)", "inner:mask"),  # as on a later pipeline stage
    ],
)
def test_what_a_tensor_is_called_does_not_depend_on_what_else_is_none(collect, script, call, name):
    body = "return (mask if x is None else x) * self.weight"
    model = INNER.format(arguments="x, mask=None", body=body, call=f"return {call}")
    assert names(collect, script, model, "model(torch.ones(2, 3)).sum().backward()", "input") == ["(model)", name]


def test_members_of_tuples_and_dictionaries_follow_after_a_colon(collect, script):
    model = INNER.format(
        arguments="x",
        body="y = x * self.weight; return y, {'double': 2 * y, 'none': None}",
        call="y, more = self.inner(x); return y + more['double']",
    )
    found = names(collect, script, model, "model(torch.ones(2, 3)).sum().backward()", "grad_output")
    assert set(found) == {"(model)", "inner:0", "inner:1.double"}


def test_dataclass_results_are_recorded_by_field(collect, script):
    model = "import dataclasses\n@dataclasses.dataclass\nclass Out:\n    logits: object\n    hidden: object\n"
    model += INNER.format(
        arguments="x", body="return Out(logits=x * self.weight, hidden=x + 1)", call="return self.inner(x).logits"
    )
    found = names(collect, script, model, "model(torch.ones(2, 3)).sum().backward()", "output")
    assert found == ["inner:logits", "inner:hidden", "(model)"]


def test_a_parameter_passed_as_argument_is_no_input(collect, script):
    model = INNER.format(
        arguments="x, weight", body="return x * weight", call="return self.inner(x, weight=self.inner.weight)"
    )
    assert names(collect, script, model, "model(torch.ones(2, 3)).sum().backward()", "input") == ["(model)", "inner"]


def test_an_output_is_recorded_as_the_modules_own_hooks_leave_it(collect, script):
    model = INNER.format(arguments="x", body="return x * self.weight", call="return self.inner(x)")
    hook = "model.inner.register_forward_hook(lambda module, args, output: output * 2) if step == 0 else None"
    text = TRAIN.format(model=model, step=f"{hook}; model(torch.ones(2, 3)).sum().backward()")
    tensors = collect(command=script(text)).rank().tensors
    assert numpy.array_equal(tensors["output", "inner", 0], numpy.full((2, 3), 2.0))


# A class, by the names of the attributes that hold the module, of which it calls the first.
WRAPPER = """
class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        {held} = {modules}
    def forward(self, *args):
        return {called}(*args)
"""


@pytest.mark.parametrize(
    ("attributes", "wrapped"),
    [(["module"], "Wrapper(Wrapper(model))"), (["_forward_module", "_original_module"], "Wrapper(model)")],
    ids=["two", "one that holds it twice"],
)
def test_wrappers_leave_no_trace_in_names(collect, script, attributes, wrapped):
    held = [f"self.{name}" for name in attributes]
    wrapper = WRAPPER.format(held=", ".join(held), modules=", ".join(["module"] * len(held)), called=held[0])
    model = INNER.format(arguments="x", body="return x * self.weight", call="return self.inner(x)")
    step = f"wrapped = wrapped if step else {wrapped}; wrapped(torch.ones(2, 3)).sum().backward()"
    collected = collect(command=script(TRAIN.format(model=model + wrapper, step=step)))
    assert collected.code == 0, collected.process.stderr
    assert collected.rank().names("output") == ["inner", "(model)"]
    assert collected.rank().names("param") == ["inner.weight"]


def test_a_class_may_have_a_named_parameters_of_its_own(collect, script):
    model = INNER.format(arguments="x", body="return x * self.weight", call="return self.inner(x)")
    method = "\n    def named_parameters(self, recurse=True):\n"
    method += "        yield from ((name.upper(), each) for name, each in super().named_parameters(recurse=recurse))\n"
    step = "model(torch.ones(2, 3)).sum().backward()"
    collected = collect(command=script(TRAIN.format(model=model + method, step=step)))
    assert collected.code == 0, collected.process.stderr
    assert collected.rank().names("param_after") == ["inner.weight"]


def test_a_class_may_have_parameters_of_its_own(collect, script):
    model = INNER.format(arguments="x", body="return x * self.weight", call="return self.inner(x)")
    method = "\n    def parameters(self):\n        return nn.ParameterList([self.inner.weight])\n"  # no iterator
    step = "model(torch.ones(2, 3)).sum().backward()"
    collected = collect(command=script(TRAIN.format(model=model + method, step=step)))
    assert collected.code == 0, collected.process.stderr
    assert "internal error" not in collected.process.stderr
    assert collected.rank().names("param_after") == ["inner.weight"]


def test_a_loss_module_counts_no_micro_batches_and_is_recorded_under_its_class(collect, script):
    model = INNER.format(arguments="x", body="return x * self.weight", call="return self.inner(x)")
    step = "[nn.MSELoss()(model(torch.ones(2, 3)), torch.zeros(2, 3)).backward() for _ in range(2)]"
    collected = collect(command=script(TRAIN.format(model=model, step=step)))
    assert collected.rank().names("input", 1) == ["(model)", "inner", "MSELoss:0", "MSELoss:1"]
    assert collected.rank().names("scalar") == ["loss", "loss"]


def test_two_models_are_two_chunks_in_order_of_their_first_call(collect, script):
    model = INNER.format(arguments="x", body="return x * self.weight", call="return self.inner(x)")
    step = "first = first if step else Model(); model(first(torch.ones(2, 3))).sum().backward()"
    rank = collect(command=script(TRAIN.format(model=model, step=step))).rank()
    assert [identity[2] for identity in rank.all if identity[4] == "output"] == [0, 0, 1, 1]
    # The optimizer knows one of them; the parameters of both are recorded.
    assert [identity[2] for identity in rank.all if identity[4] == "param_after"] == [0, 1]
    assert [identity[2] for identity in rank.all if identity[4] == "param_delta"] == [1]


def test_masters_and_main_gradients_are_taken_where_megatron_keeps_them(collect, script):
    text = """
import torch
from torch import nn
torch.manual_seed(0)  # of which no weight is so small that the step shows in bf16
model = nn.Linear(3, 2, bias=False, dtype=torch.bfloat16)
weight = model.weight
weight.main_grad = torch.zeros(2, 3)
weight.main_param = nn.Parameter(weight.detach().float())
def add_to_main_grad(parameter):
    parameter.main_grad.add_(parameter.grad)
    parameter.grad = None
weight.register_post_accumulate_grad_hook(add_to_main_grad)
optimizer = torch.optim.SGD([weight.main_param], lr=1e-4)
for _ in range(2):
    model(torch.ones(4, 3, dtype=torch.bfloat16)).sum().backward()
    weight.main_param.grad = weight.main_grad
    torch.nn.utils.clip_grad_norm_([weight.main_param], 0.1)
    optimizer.step()
    with torch.no_grad():
        weight.copy_(weight.main_param)
        weight.mul_(2)  # not what the step left
"""
    tensors = collect(command=script(text)).rank().tensors
    assert numpy.array_equal(tensors["main_grad", "weight", -1], numpy.full((2, 3), 4, "f4"))
    delta = tensors["param_delta", "weight", -1]  # far below the resolution of bf16
    assert delta.dtype == "f4" and (delta < 0).all() and (abs(delta) < 1e-4).all()
    before, after = tensors["param", "weight", -1], tensors["param_after", "weight", -1]
    assert numpy.array_equal(after, before + 0x80)  # bf16 bits: the exponent is one higher


@pytest.mark.skipif(not hasattr(torch.nn.utils, "clip_grads_with_norm_"), reason="PyTorch before 2.6")
def test_a_norm_by_which_several_optimizers_clip_is_one(collect, script):
    text = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
for _ in range(2):
    model(torch.ones(4, 3)).sum().backward()
    whole = torch.tensor(7.0)  # of all gradients; the norm of those of one part is another
    for part, norm in zip(model, (whole, torch.tensor(5.0) if OTHER else whole)):
        nn.utils.clip_grads_with_norm_(part.parameters(), 1.0, norm)
    for optimizer in optimizers:
        optimizer.step()
"""
    shared = collect(command=script("OTHER = False" + text)).rank()
    assert shared.names("scalar") == ["loss", "grad_norm"]
    another = collect(command=script("OTHER = True" + text)).rank()
    assert another.names("scalar") == ["loss", "grad_norm", "grad_norm#1"]


def test_sparse_tensors_are_recorded_densely(collect, script):
    model = INNER.format(
        arguments="x", body="return x.to_dense() * self.weight", call="return self.inner(x.to_sparse())"
    )
    step = "model(torch.ones(2, 3)).sum().backward()"
    collected = collect(command=script(TRAIN.format(model=model, step=step)))
    assert collected.code == 0, collected.process.stderr
    assert not any("warning" in message for message in collected.messages), collected.messages
    assert collected.rank().tensors["input", "inner", 0].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_what_cannot_be_recorded_is_named_and_no_reason_to_fail(collect, script):
    model = INNER.format(
        arguments="x", body="return x.to_dense() * self.weight", call="return self.inner(x.to_mkldnn())"
    )
    step = "model(torch.ones(2, 3)).sum().backward()"
    collected = collect(command=script(TRAIN.format(model=model, step=step)))
    assert collected.code == 0, collected.process.stderr
    assert collected.messages[1] == "ttrace: warning: rank 0: not traceable: 'inner' is a _mkldnn tensor"
    assert collected.messages[-1] == f"ttrace: 1 warning, in {collected.directory}/rank-*.warning"


# A view of memory that was freed has an address, which is none: whoever reads there ends the process.
@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("h = x.repeat(1000, 1)[500:]; h.untyped_storage().resize_(0); return h", "a tensor without memory"),
        ("h = x.repeat(1000, 1)[::2]; h.untyped_storage().resize_(8); return h", "a tensor without memory"),
        ("return torch._efficientzerotensor(3, 4)", "a tensor without memory"),
        ("return torch.nested.nested_tensor([x, x])", "a nested tensor"),
    ],
)
def test_a_tensor_that_has_no_elements_to_read_is_named_and_ends_nothing(collect, script, made, named):
    model = INNER.format(arguments="x", body=made, call="self.inner(x.detach()); return x.sum() * self.inner.weight")
    step = "model(torch.ones(2, 3)).sum().backward()"
    collected = collect(command=script(TRAIN.format(model=model, step=step)))
    assert collected.code == 0, collected.process.stderr
    assert collected.messages[1].startswith(f"ttrace: warning: rank 0: not traceable: 'inner' is {named}")


def test_lists_that_repeat_lists_do_not_hold_up_the_program(collect, script):
    model = INNER.format(
        arguments="x",
        body="repeated = x\n        for _ in range(40): repeated = [repeated, repeated]\n        return repeated",
        call="self.inner(x.detach()); return x.sum() * self.inner.weight",
    )
    step = "model(torch.ones(2, 3)).sum().backward(); print(step)"
    collected = collect(command=script(TRAIN.format(model=model, step=step)))
    assert (collected.code, collected.process.stdout) == (2, "0\n1\n")
    assert "more than 1,000,000 tensors and containers" in collected.messages[0]
