"""Dumps of Transformer Engine's DumpTensors, laid out as its source writes them (debug/features/dump_tensors.py)."""

import pickle

import pytest
import torch

from traces import Tensor, record_run

# What is dumped, and what it becomes.
NAMES = {
    "activation": ("input", "{}:activation", 0),
    "output": ("output", "{}:output", 0),
    "gradient": ("grad_output", "{}:gradient", 0),
    "dgrad": ("grad_input", "{}:dgrad", 0),
    "weight": ("param", "{}.weight", -1),
    "wgrad": ("param_grad", "{}.weight", 0),
}


def dump(folder, name, value, step=0, rank=0):
    path = folder / f"rank_{rank}" / f"iter_{step:06d}" / f"{name}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path)
    return path


def test_operands_and_results_of_products_have_names_of_their_own(ttrace, tmp_path):
    tensors = []
    for step in range(2):
        for i, (name, (kind, recorded, microbatch)) in enumerate(NAMES.items()):
            for layer in ("decoder_layers_0_mlp_linear_fc1", "decoder_layers_0_weight_output"):
                value = torch.arange(4.0) + i + 100 * step + len(layer)
                content = {"high_precision": value.bfloat16(), "scale_inv": torch.ones(1)}
                dump(tmp_path / "log" / "tensor_dumps", f"{layer}_{name}", content, step)
                tensors.append(Tensor(recorded.format(layer), value.bfloat16().float().numpy(), kind, step, microbatch))
    (tmp_path / "log" / "tensor_dumps" / "note.pt").write_bytes(b"")
    record_run(tmp_path / "recorded", [tensors])
    printed = ttrace.imports("transformer-engine", "--", "log")
    assert (
        "left out: 24 parts of quantized tensors" in printed.out and "1 files of others, such as note.pt" in printed.out
    )
    text = ttrace.compares("trace", "recorded", code=0)
    assert text.startswith("same\n") and "24 compared: 24 pass" in text


def test_ranks_and_the_folder_of_one_of_them(ttrace, tmp_path):
    for rank in range(2):
        dump(tmp_path / "tensor_dumps", "fc_output", {"high_precision": torch.ones(2)}, rank=rank)
    assert "2 ranks" in ttrace.imports("transformer-engine", "--axes=tp=2", "--", "tensor_dumps").out
    printed = ttrace.imports("transformer-engine", "--", "tensor_dumps/rank_0", output="one")
    assert printed.out.startswith(str(tmp_path / "one") + ": 1 tensor,")


@pytest.mark.parametrize("content", [[torch.ones(2)], torch.ones(2), {"high_precision": [torch.ones(2)]}])
def test_what_it_would_not_write_is_refused(ttrace, tmp_path, content):
    path = dump(tmp_path / "dumps", "fc_output", content)
    message = ttrace.refuses_to_import("transformer-engine", "--", "dumps")
    assert message.startswith(str(path)) and "expected a" in message


def test_objects_of_quantized_tensors_are_not_unpickled(ttrace, tmp_path):
    path = dump(tmp_path / "dumps", "fc_output", {"high_precision": torch.ones(2), "quantized": pickle.Pickler})
    message = ttrace.refuses_to_import("transformer-engine", "--", "dumps")
    assert message.startswith(f"{path}: holds objects that are no tensors") and "quantized_tensor: False" in message
    path.write_bytes(path.read_bytes()[:100])
    assert "expected a whole .pt file" in ttrace.refuses_to_import("transformer-engine", "--", "dumps")


def test_dumps_without_values_are_refused(ttrace, tmp_path):
    dump(tmp_path / "dumps", "fc_output", {"scale_inv": torch.ones(1)})
    assert "high_precision_tensor: True" in ttrace.refuses_to_import("transformer-engine", "--", "dumps")
    (tmp_path / "empty").mkdir()
    assert "no dump of DumpTensors" in ttrace.refuses_to_import("transformer-engine", "--", "empty")
    (tmp_path / "rank_0_activations.log").write_text("[layers.0/op_0_mm]\n  L1 norm: 1.0\n")
    assert "and no values" in ttrace.refuses_to_import("torchtitan", "--", "rank_0_activations.log")
