"""Dumps of SGLang's dumper, forged as its source writes them (python/sglang/srt/debug_utils/dumper.py)."""

import pytest
import torch

from traces import Tensor, record_run


class Dumper:
    """Of one rank."""

    def __init__(self, folder, rank=0):
        self._folder, self._rank, self._index = folder, rank, 0
        folder.mkdir(parents=True, exist_ok=True)

    def dump(self, name, value, step=0, recompute_status="disabled", **tags):
        self._index += 1
        full = {"step": step, "rank": self._rank, "dump_index": self._index, "name": name}
        full |= {"recompute_status": recompute_status, **tags}
        path = self._folder / ("___".join(f"{key}={value}" for key, value in full.items()) + ".pt")
        meta = full | {
            "world_rank": self._rank,
            "world_size": 1,
            "megatron_parallel_info": {"tp_rank": 0, "tp_size": 1},
        }
        torch.save({"value": value, "meta": meta}, path)
        return path


def test_names_say_what_was_dumped(ttrace, tmp_path):
    dumper, tensors = Dumper(tmp_path / "dumper" / "dump_20260101_000000"), []
    expected = [
        ("hidden_states", {"layer_id": 3}, "output", "layers.3.hidden_states", 0),
        ("hidden_states", {"layer_id": 4}, "output", "layers.4.hidden_states", 0),
        ("hidden_states", {"layer_id": 4}, "output", "layers.4.hidden_states#1", 0),
        ("grad__hidden_states", {"layer_id": 3}, "grad_output", "layers.3.hidden_states", 0),
        ("non_intrusive__model.layers.0.mlp.inputs.0", {"layer_id": 0}, "input", "model.layers.0.mlp", 0),
        ("non_intrusive__model.layers.0.mlp.inputs.mask", {}, "input", "model.layers.0.mlp:mask", 0),
        ("non_intrusive__model.layers.0.mlp.output", {}, "output", "model.layers.0.mlp", 0),
        ("non_intrusive__model.layers.0.attn.output.1", {}, "output", "model.layers.0.attn:1", 0),
        ("non_intrusive__output", {}, "output", "(model)", 0),
        ("grad__non_intrusive__model.layers.0.mlp.output", {}, "grad_output", "model.layers.0.mlp", 0),
        ("param__model.norm.weight", {}, "param", "model.norm.weight", -1),
        ("grad__param__model.norm.weight", {}, "main_grad", "model.norm.weight", -1),
    ]
    for step in range(2):
        for i, (name, tags, kind, recorded, microbatch) in enumerate(expected):
            value = torch.arange(4.0) + i + 100 * step
            dumper.dump(name, value.bfloat16(), step, **tags)
            tensors.append(Tensor(recorded, value.bfloat16().float().numpy(), kind, step, microbatch))
    dumper.dump("note", {"kind": "text", "list": [1, 2]})
    torch.save(torch.ones(1), tmp_path / "dumper" / "other.pt")
    record_run(tmp_path / "recorded", [tensors])
    printed = ttrace.imports("sglang", "--", "dumper")
    assert "left out: 1 files of others, such as other.pt\n" in printed.out and "values that are a str" in printed.out
    text = ttrace.compares("trace", "recorded", code=0)
    assert text.startswith("same\n") and "24 compared: 24 pass" in text


def test_a_recomputed_forward_is_one(ttrace, tmp_path):
    dumper = Dumper(tmp_path / "dump")
    dumper.dump("hidden", torch.ones(3), recompute_status="original")
    dumper.dump("hidden", torch.ones(3) * 2, recompute_status="recompute")
    ttrace.imports("sglang", "--", "dump")
    text = ttrace.compares("trace", "trace", "--allow-same-run", "--all", code=1)
    assert "recompute-differs" in text


def test_what_its_name_and_its_meta_say_must_agree(ttrace, tmp_path):
    path = Dumper(tmp_path / "dump").dump("hidden", torch.ones(3))
    for lie in ({"rank": 1}, {"step": -1}, {"step": "0"}, {"name": ""}, {"name": None}):
        content = torch.load(path)
        torch.save({**content, "meta": content["meta"] | lie}, path)
        assert ttrace.refuses_to_import("sglang", "--", "dump").startswith(f"dump/{path.name}: ")
        torch.save(content, path)
    torch.save({"value": torch.ones(2)}, path)
    assert "expected value and meta" in ttrace.refuses_to_import("sglang", "--", "dump")
    path.write_bytes(path.read_bytes()[:100])
    assert "expected a whole .pt file" in ttrace.refuses_to_import("sglang", "--", "dump")


@pytest.mark.parametrize("name", ["a.pt", "rank=x___dump_index=1.pt"])
def test_a_folder_of_others_is_refused(ttrace, tmp_path, name):
    (tmp_path / "dump").mkdir()
    torch.save(torch.ones(1), tmp_path / "dump" / name)
    assert "no file of SGLang's dumper" in ttrace.refuses_to_import("sglang", "--", "dump")


def test_a_rank_that_is_a_tensor_is_refused_in_one_line(ttrace, tmp_path):
    path = Dumper(tmp_path / "dumper").dump("hidden_states", torch.ones(2))
    content = torch.load(path)
    content["meta"]["rank"] = torch.ones(3)
    torch.save(content, path)
    assert "expected that of its name" in ttrace.refuses_to_import("sglang", str(tmp_path / "dumper"))
