"""Blocks of a program, recorded in its own process: unit tests of one module."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from conftest import PACKAGE
from torch import nn

import ttrace

HERE = pathlib.Path(__file__).parent


class Layer(nn.Module):
    """With `bug`, fc2 gets the wrong activations."""

    def __init__(self, bug=False, checkpointed=False):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.bug, self.checkpointed = bug, checkpointed

    def forward(self, x):
        run = self.hidden
        if self.checkpointed:
            return torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
        return run(x)

    def hidden(self, x):
        y = torch.relu(self.fc1(self.norm(x)))
        return x + self.fc2(y * 1.01 if self.bug else y)


def step(layer):
    layer.zero_grad()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 16, generator=generator).requires_grad_()
    layer(x).square().sum().backward()
    return x


def kinds_of(trace):
    return {tensor.kind for tensor in ttrace.open(trace)}


@pytest.fixture
def reference(tmp_path):
    layer = Layer()
    return ttrace.testing.record_reference(tmp_path / "reference", lambda: step(layer))


def test_a_block_is_a_whole_trace_that_check_has_nothing_to_say_about(tmp_path, reference):
    for name in ("first", "second"):
        with ttrace.record(tmp_path / name):
            step(Layer())
        report = ttrace.testing.assert_same(tmp_path / name, reference.trace, tolerance=reference.tolerance)
        assert (report.counts.compared, report.counts.fail, report.notes) == (35, 0, ())
        assert [(finding.name, finding.reason) for finding in report.findings] == [("norm.bias", "all-zero")]
        trace = ttrace.open(tmp_path / name)
        assert trace.complete
        assert not list((tmp_path / name).glob("*.warning"))
    assert kinds_of(tmp_path / "first") == {
        *("input", "output", "grad_output", "grad_input", "param", "param_grad", "main_grad", "scalar")
    }


def test_a_wrong_module_fails_at_its_first_wrong_tensor_and_rounding_does_not(tmp_path, reference):
    noisy = Layer()
    noisy.fc2.register_forward_pre_hook(lambda _, given: (given[0] * (1 + 2**-23),))
    for name, layer in (("wrong", Layer(bug=True)), ("rounded", noisy)):
        with ttrace.record(tmp_path / name):
            step(layer)
    ttrace.testing.assert_same(tmp_path / "rounded", reference.trace, tolerance=reference.tolerance)
    assert ttrace.check(tmp_path / "rounded", reference.trace).verdict == "different"  # there was something to tolerate
    with pytest.raises(AssertionError, match=r"^fc2, input, micro-batch 0: every element is 1\.01 times"):
        ttrace.testing.assert_same(tmp_path / "wrong", reference.trace, tolerance=reference.tolerance)


def test_recording_changes_nothing_and_leaves_nothing_behind(tmp_path):
    def patched():
        places = (
            (torch.nn.Module, "_call_impl"),
            (torch.autograd, "backward"),
            (torch, "compile"),
            (torch.utils.checkpoint, "checkpoint"),
            (torch.nn.utils, "clip_grad_norm_"),
            (torch.amp.GradScaler, "_check_inf_per_device"),
        )
        return [vars(owner)[name] for owner, name in places]

    before, finders, variables = patched(), list(sys.meta_path), dict(os.environ)
    layer, other = Layer(), Layer()
    x = step(other)
    for name in ("first", "second"):
        with ttrace.record(tmp_path / name):
            assert patched()[0] is not before[0]
            recorded = step(layer)
        assert patched() == before
        assert (sys.meta_path, dict(os.environ)) == (finders, variables)
        assert not any(parameter._backward_hooks for parameter in layer.parameters())
        assert torch.equal(recorded.grad, x.grad)
        for one, two in zip(layer.parameters(), other.parameters(), strict=True):
            assert torch.equal(one.grad, two.grad)
    optimizers = sys.modules["torch.optim.optimizer"]
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks


def test_what_a_program_has_wrapped_in_the_block_stays(tmp_path, monkeypatch):
    with ttrace.record(tmp_path / "trace"):
        inner = torch.autograd.backward
        monkeypatch.setattr(torch.autograd, "backward", lambda *args, **kwargs: inner(*args, **kwargs))
        wrapper = torch.autograd.backward
        step(Layer())
    assert torch.autograd.backward is wrapper
    step(Layer())  # without a recording


def test_a_checkpointed_layer_is_recorded_with_its_second_forward(tmp_path, reference):
    with ttrace.record(tmp_path / "trace"):
        step(Layer(checkpointed=True))
    assert any(tensor.recomputed for tensor in ttrace.open(tmp_path / "trace"))
    ttrace.testing.assert_same(tmp_path / "trace", reference.trace, tolerance=reference.tolerance)


def test_the_steps_of_an_optimizer_in_the_block_are_checked(tmp_path):
    def train(factor):
        layer = Layer()
        optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3 * factor)
        for _ in range(2):
            step(layer)
            optimizer.step()

    for name, factor in (("reference", 1), ("same", 1), ("wrong", 1.5)):
        with ttrace.record(tmp_path / name):
            train(factor)
    report = ttrace.testing.assert_same(tmp_path / "same", tmp_path / "reference")
    assert report.optimizer_steps.updates_checked == 12
    sentence = ttrace.check(tmp_path / "wrong", tmp_path / "reference").sentence
    assert "param_delta: learning rate 0.0015, reference 0.001" in sentence


def test_the_program_may_record_tensors_of_its_own(tmp_path):
    with ttrace.record(tmp_path / "trace"):
        import ttrace_torch

        layer = Layer()
        layer.register_forward_hook(lambda *_: ttrace_torch.record("mine", torch.ones(3)))
        step(layer)
    ttrace_torch.record("mine", torch.ones(3))  # does nothing
    assert ttrace.open(tmp_path / "trace").tensor("mine").numpy().tolist() == [1, 1, 1]


def no_grad():
    with torch.no_grad():
        Layer()(torch.ones(2, 16))


def with_gradients_from_before(tmp_path):
    layer = Layer()
    step(layer)
    with ttrace.record(tmp_path / "trace"):
        layer(torch.ones(2, 16)).sum().backward()


def in_another(tmp_path):
    with ttrace.record(tmp_path / "outer"), ttrace.record(tmp_path / "trace"):
        step(Layer())


def of(run, **options):
    def record(tmp_path):
        with ttrace.record(tmp_path / "trace", **options):
            run()

    return record


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (of(lambda: None), "nothing was recorded; expected a call of a torch.nn.Module with gradients enabled"),
        (of(no_grad), "nothing was recorded; expected a call of a torch.nn.Module with gradients enabled"),
        (of(lambda: step(Layer()), axes="tp=2"), "axis 'tp' has size 2; expected 1 to 1, the number of ranks"),
        (with_gradients_from_before, "before the block there were gradients of 'norm.weight', 'norm.bias'"),
        (in_another, "this process is recorded already; expected one recording at a time"),
    ],
    ids=["nothing", "no-grad", "axes", "gradients", "nested"],
)
def test_what_cannot_be_recorded_whole_is_an_exception(tmp_path, capfd, record, message):
    with pytest.raises(ttrace.InputError) as error:
        record(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""
    step(Layer())  # the next test may record


def test_a_trace_is_not_mixed_with_another(tmp_path):
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "mine").write_text("")
    with pytest.raises(ttrace.InputError, match="already exists; expected a new or an empty directory"):
        of(lambda: step(Layer()))(tmp_path)


def test_a_block_that_raises_is_no_whole_trace(tmp_path, reference):
    with pytest.raises(KeyError), ttrace.record(tmp_path / "trace"):
        step(Layer())
        raise KeyError("mine")
    assert not ttrace.open(tmp_path / "trace").complete
    with pytest.raises(AssertionError, match="rank 0"):
        ttrace.testing.assert_same(tmp_path / "trace", reference.trace, tolerance=reference.tolerance)


def test_a_reference_is_recorded_from_one_random_state(tmp_path):
    layer = Layer()

    def run():
        layer.zero_grad()
        layer(torch.randn(4, 16)).square().sum().backward()

    torch.manual_seed(3)
    reference = ttrace.testing.record_reference(tmp_path / "home", run)
    with ttrace.record(tmp_path / "candidate"):
        run()
    ttrace.testing.assert_same(tmp_path / "candidate", reference.trace)  # bit for bit


def test_a_reference_whose_runs_add_up_gradients_is_refused(tmp_path):
    layer = Layer()
    with pytest.raises(ttrace.InputError, match="before the block there were gradients"):
        ttrace.testing.record_reference(tmp_path / "home", lambda: layer(torch.ones(2, 16)).sum().backward())


def test_the_ranks_of_a_tensor_parallel_module_record_one_trace(tmp_path):
    dtype, options = "bfloat16", {"annotations": HERE / "parallel_mlp.yaml"}
    command = [sys.executable, HERE / "parallel_mlp.py", tmp_path, dtype]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    reference = tmp_path / "reference" / "reference", tmp_path / "reference" / "tolerance.yaml"
    trace = ttrace.open(tmp_path / "correct", **options)
    assert (trace.axes, trace.compute_dtype) == ({"tp": 2}, dtype)
    assert trace.tensor("fc1.weight", kind="main_grad").shape == (256, 64)
    report = ttrace.testing.assert_same(tmp_path / "correct", reference[0], tolerance=reference[1], **options)
    assert report.notes == ()
    report = ttrace.check(tmp_path / "wrong", reference[0], tolerance=reference[1], **options)
    expected = "(model), grad_input, micro-batch 0: the 2 ranks of tp hold unsummed partial values"
    assert report.sentence.startswith(expected)
