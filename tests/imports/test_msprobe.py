"""Dumps of msprobe, forged as mindstudio-probe 26.2.0 writes them for a model of PyTorch at level L0: names, dump.json
and what its gradients are were seen on a real run."""

import json

import pytest
import torch

from traces import Tensor, record_run

GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(*shape, generator=GENERATOR)


class Dump:
    """One rank's step."""

    def __init__(self, folder):
        self._folder, self._data = folder, {}
        (folder / "dump_tensor_data").mkdir(parents=True)

    def tensor(self, file, value):
        torch.save(value, self._folder / "dump_tensor_data" / f"{file}.pt")
        return {
            "type": "torch.Tensor",
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "Max": 1.0,
            "requires_grad": True,
            "data_name": f"{file}.pt",
        }

    def add(self, call, **entry):
        self._data[call] = entry

    def forward(self, module, call, inputs, outputs, parameters=(), **kwargs):
        name = f"Module.{module}.forward.{call}"
        self.add(
            name,
            input_args=[self.tensor(f"{name}.input.{i}", value) for i, value in enumerate(inputs)],
            input_kwargs={key: self.tensor(f"{name}.kwargs.{key}", value) for key, value in kwargs.items()},
            output=[self.tensor(f"{name}.output.{i}", value) for i, value in enumerate(outputs)],
            parameters={key: self.tensor(f"{name}.parameters.{key}", value) for key, value in dict(parameters).items()},
        )

    def backward(self, module, call, grad_output, grad_input):
        name = f"Module.{module}.backward.{call}"
        self.add(
            name,
            input=[self.tensor(f"{name}.input.0", grad_output)],
            output=[self.tensor(f"{name}.output.0", grad_input)],
        )

    def gradient(self, module, call, **gradients):
        name = f"Module.{module}.parameters_grad.{call}"
        self.add(name, **{key: [self.tensor(f"{name}.{key}", value)] for key, value in gradients.items()})

    def write(self, **header):
        header = {"task": "tensor", "level": "L0", "framework": "pytorch", "dump_data_dir": "elsewhere"} | header
        (self._folder / "dump.json").write_text(json.dumps(header | {"data": self._data}))


@pytest.fixture
def dumped(tmp_path):
    """Two micro-batches of one step; and what ttrace's collector records of the same, and more."""
    dump, tensors = Dump(tmp_path / "dump" / "step1" / "rank0"), []
    weight = drawn(3, 3)
    tensors.append(Tensor("layers.0.fc.weight", weight.numpy(), "param", 1, -1))
    total = torch.zeros(3, 3)
    for microbatch in range(2):
        x, y, scale, gradient = drawn(2, 3), drawn(2, 3), drawn(1), drawn(3, 3)
        total = total + gradient
        dump.forward("layers.0.fc.Linear", microbatch, [x], [y], {"weight": weight})
        dump.forward("layers.0.Block", microbatch, [x], [y, x], scale=scale)
        dump.forward("act.GELU", 2 * microbatch, [x], [y])
        dump.forward("act.GELU", 2 * microbatch + 1, [y], [x])
        dump.backward("layers.0.fc.Linear", microbatch, y, drawn(2, 3))
        dump.gradient("layers.0.fc.Linear", microbatch, weight=total)
        for name, kind, value in [
            ("layers.0.fc", "input", x),
            ("layers.0.fc", "output", y),
            ("layers.0", "input", x),
            ("layers.0:scale", "input", scale),
            ("layers.0:0", "output", y),
            ("layers.0:1", "output", x),
            ("act", "input", x),
            ("act", "output", y),
            ("act#1", "input", y),
            ("act#1", "output", x),
            ("layers.0.fc", "grad_output", y),
            ("layers.0.fc", "grad_input", x),
            ("layers.0.fc.weight", "param_grad", gradient),
            ("loss", "scalar", scale),
        ]:
            tensors.append(Tensor(name, value.numpy(), kind, 1, microbatch))
    dump.add("Functional.relu.0.forward", input_args=[], input_kwargs={}, output=[])
    dump.write()
    record_run(tmp_path / "recorded", [tensors])
    return dump


def test_what_msprobe_dumped_is_what_the_collector_records(ttrace, dumped):
    printed = ttrace.imports("msprobe", "--partial", "--", "dump")
    assert "left out: 1 entries of functions, not of modules, such as Functional.relu.0.forward\n" in printed.out
    assert "left out: 2 gradients that one module alone gives its input, such as" in printed.out
    assert "left out: 1 accumulated gradients of later micro-batches, such as" in printed.out
    text = ttrace.compares("recorded", "trace", code=0)
    assert text.startswith(
        "same, of what both traces hold\nthe candidate holds less by design (imported from msprobe with --partial): of "
        "the reference, 5 tensors not recorded in it: 2 grad_input, 1 param_grad, 2 scalar\n"
    )
    assert "24 compared: 24 pass, 0 fail, 0 untrusted; 0 missing, 5 not seen" in text


def test_without_partial_they_are_missing(ttrace, dumped):
    ttrace.imports("msprobe", "--", "dump/step1/rank0")
    text = ttrace.compares("recorded", "trace", code=1)
    assert text.startswith("different\n") and "; 5 missing\n" in text


def test_what_differs_is_found(ttrace, tmp_path, dumped):
    file = tmp_path / "dump/step1/rank0/dump_tensor_data/Module.layers.0.fc.Linear.backward.1.input.0.pt"
    torch.save(torch.load(file) * 1.5, file)
    ttrace.imports("msprobe", "--partial", "--", "dump")
    text = ttrace.compares("recorded", "trace", code=1)
    assert text.startswith("different\nthe candidate holds less by design")
    assert "first wrong tensor: layers.0.fc grad_output, iteration 1, micro-batch 1\n" in text


def test_several_models_are_chunks(ttrace, tmp_path):
    dump = Dump(tmp_path / "dump" / "step0" / "rank0")
    for chunk in range(2):
        value = drawn(2)
        dump.forward(f"{chunk}.0.Linear", 0, [value], [value])
        dump.forward(f"{chunk}..Sequential", 0, [value], [value])
    dump.write()
    ttrace.imports("msprobe", "--", "dump")
    listed = ttrace.reports("inspect", "trace", code=0)
    assert "8 tensors" in listed


def test_a_dump_without_tensors_is_refused(ttrace, tmp_path, dumped):
    dumped.write(task="statistics")
    assert "is of the task 'statistics', which keeps no tensors" in ttrace.refuses_to_import("msprobe", "--", "dump")
    (tmp_path / "dump/step1/rank0/dump.json").write_text("[")
    assert "expected a dump.json of msprobe" in ttrace.refuses_to_import("msprobe", "--", "dump")
    (tmp_path / "dump/step1/rank0/dump.json").unlink()
    assert "no dump.json" in ttrace.refuses_to_import("msprobe", "--", "dump")


@pytest.mark.parametrize("name", ["../../secret.pt", "/etc/passwd", "..", "", "a/b.pt"])
def test_a_dump_names_files_beside_it_only(ttrace, tmp_path, dumped, name):
    torch.save(torch.ones(2), tmp_path / "dump" / "secret.pt")
    dumped.add("Module.evil.Linear.forward.0", input_args=[{"data_name": name}], input_kwargs={}, output=[])
    dumped.write()
    assert "expected one beside it" in ttrace.refuses_to_import("msprobe", "--", "dump")
