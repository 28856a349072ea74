"""`ttrace check A B` on what people have: checkpoints, arrays and dumps in any two formats, imported by nobody."""

import json
import os
import struct
import sys

import numpy
import pytest
import torch
from safetensors.torch import save_file
from test_checkpoint import distributed, sharded, whole
from test_msprobe import Dump

from traces import Tensor, record_run

PYTHON = f"--python={sys.executable}"


def weights():
    generator = torch.Generator().manual_seed(0)
    return {
        "layers.0.weight": torch.randn(4, 3, generator=generator),
        "layers.1.weight": torch.randn(2, 4, generator=generator),
        "positions": torch.arange(5),
    }


def wrong():
    tensors = weights()
    tensors["layers.1.weight"][1, 2] += 1
    return tensors


def megatron(path, tensors):
    """A --save folder with a distributed checkpoint of iteration 7."""
    path.mkdir()
    (path / "latest_checkpointed_iteration.txt").write_text("7")
    distributed(path / "iter_0000007", tensors)


def arrays(path, tensors):
    path.mkdir()
    for name, tensor in tensors.items():
        numpy.save(path / f"{name}.npy", tensor.numpy())


def pickles(path, tensors):
    """Parts of a state dict without an index."""
    path.mkdir()
    for i, (name, tensor) in enumerate(tensors.items()):
        torch.save({name: tensor}, path / f"part-{i}.bin")


def training_state(path, tensors):
    torch.save({"step": 3, "optimizer": {"m": torch.ones(3)}, "model": tensors}, path)


WRITERS = {
    "file.safetensors": lambda path, tensors: save_file(tensors, path),
    "sharded": sharded,
    "folder": whole,
    "file.npz": lambda path, tensors: numpy.savez(path, **{name: t.numpy() for name, t in tensors.items()}),
    "arrays": arrays,
    "file.pt": lambda path, tensors: torch.save(tensors, path),
    "state.ckpt": training_state,
    "pickles": pickles,
    "dcp": distributed,
    "megatron": megatron,
}
PAIRS = [
    ("file.safetensors", "dcp"),
    ("sharded", "file.pt"),
    ("folder", "file.npz"),
    ("state.ckpt", "arrays"),
    ("megatron", "pickles"),
]  # every format


def written(tmp_path, side, name, tensors):
    (tmp_path / side).mkdir()
    WRITERS[name](tmp_path / side / name, tensors)
    return f"{side}/{name}"


def test_every_format_is_in_a_pair():
    assert {name for pair in PAIRS for name in pair} == set(WRITERS)


@pytest.mark.parametrize(("of_reference", "of_candidate"), PAIRS)
def test_two_formats_are_compared_by_one_command(ttrace, tmp_path, of_reference, of_candidate):
    trusted = written(tmp_path, "a", of_reference, weights())
    text = ttrace.reports("check", trusted, written(tmp_path, "b", of_candidate, weights()), PYTHON, code=0)
    assert text.startswith("same\n") and "3 compared: 3 pass, 0 fail, 0 untrusted; 0 missing" in text
    text = ttrace.reports("check", trusted, written(tmp_path, "c", of_candidate, wrong()), PYTHON, code=1)
    assert text.startswith("different\nfirst wrong tensor: layers.1.weight param, iteration 0\n")
    assert "3 compared: 2 pass, 1 fail" in text
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_what_is_advised_after_a_difference_is_possible_with_a_checkpoint(ttrace, tmp_path):
    pair = [written(tmp_path, "a", "file.safetensors", weights()), written(tmp_path, "b", "sharded", wrong())]
    text = ttrace.reports("check", *pair, code=1)
    assert "next: ttrace check --reference a/file.safetensors --candidate b/sharded --html report.html\n" in text
    assert "estimate-tolerance" not in text and "perturbed" not in text


def test_what_of_a_file_is_not_compared_has_a_name(ttrace, tmp_path):
    pair = [written(tmp_path, "a", "file.safetensors", weights()), written(tmp_path, "b", "state.ckpt", weights())]
    text = ttrace.reports("check", *pair, PYTHON, code=0)
    assert "note: candidate: left out, and not compared: 1 tensors of other parts, such as optimizer.m\n" in text


def test_a_part_of_a_file_is_named_behind_colons(ttrace, tmp_path):
    torch.save({"model": weights(), "ema": wrong()}, tmp_path / "state.pt")
    text = ttrace.reports("check", "state.pt::model", "state.pt::ema", PYTHON, code=1)
    assert text.startswith("different\nfirst wrong tensor: layers.1.weight param, iteration 0\n")
    save_file(weights(), tmp_path / "a.safetensors")
    assert ttrace.reports("check", "a.safetensors", "state.pt::model", PYTHON, code=0).startswith("same\n")


def test_two_files_of_one_tensor_each_are_compared_whatever_their_names(ttrace, tmp_path):
    values = weights()["layers.0.weight"]
    numpy.save(tmp_path / "expected.npy", values.numpy())
    torch.save(values, tmp_path / "ours.pt")
    torch.save(values + 1, tmp_path / "theirs.pt")
    text = ttrace.reports("check", "expected.npy", "ours.pt", PYTHON, code=0)
    assert "the candidate's ours param, iteration 0 is compared with the reference's expected param, iter" in text
    text = ttrace.reports("check", "expected.npy", "theirs.pt", PYTHON, code=1)
    assert text.startswith("different\nfirst wrong tensor: expected param, iteration 0\n")


def test_files_of_several_tensors_go_by_their_names(ttrace, tmp_path):
    save_file({"a": torch.ones(3), "b": torch.ones(2)}, tmp_path / "a.safetensors")
    save_file({"c": torch.ones(3), "b": torch.ones(2)}, tmp_path / "b.safetensors")
    assert "first missing tensor: a param" in ttrace.reports("check", "a.safetensors", "b.safetensors", code=1)


def test_files_with_the_same_keys_are_things_of_their_own(ttrace, tmp_path):
    for side in "ab":
        (tmp_path / side).mkdir()
        for name in ("first", "second"):
            is_wrong = side == "b" and name == "second"
            numpy.savez(tmp_path / side / name, x=numpy.ones(3), y=numpy.full(2, 2 if is_wrong else 1))
    text = ttrace.reports("check", "a", "b", PYTHON, code=1)
    assert text.startswith("different\nfirst wrong tensor: second.y param") and "4 compared: 3 pass, 1 fail" in text


def test_a_trace_is_compared_with_a_checkpoint_of_its_parameters(ttrace, tmp_path):
    values = weights()["layers.0.weight"].numpy()
    recorded = [Tensor("layers.0.weight", values, kind="param", microbatch=-1), Tensor("layers.0", values)]
    record_run(tmp_path / "trace", [recorded])
    numpy.savez(tmp_path / "saved.npz", **{"layers.0.weight": values})
    text = ttrace.reports("check", "trace", "saved.npz", PYTHON, code=0)
    assert text.startswith("same, of what both traces hold\nthe candidate holds less by design (a checkpoint)")
    numpy.savez(tmp_path / "other.npz", **{"layers.0.weight": values + 1})
    assert "first wrong tensor: layers.0.weight" in ttrace.reports("check", "trace", "other.npz", PYTHON, code=1)


def test_two_dumps_of_msprobe_are_compared_and_what_one_lacks_is_missing(ttrace, tmp_path):
    values = weights()["layers.0.weight"]
    for side, output in (("a", values), ("b", values), ("c", values + 1)):
        dump = Dump(tmp_path / side / "step0" / "rank0")
        dump.forward("mlp.Linear", 0, [values], [output])
        if side != "b":
            dump.forward("norm.Linear", 0, [values], [values * 2])
        dump.write()
    assert "first wrong tensor: mlp output" in ttrace.reports("check", "a", "c", PYTHON, code=1)
    assert "first missing tensor: norm input" in ttrace.reports("check", "a", "b", PYTHON, code=1)


def test_show_inspect_and_export_look_into_a_checkpoint(ttrace, tmp_path):
    path = written(tmp_path, "a", "sharded", weights())
    assert "layers.1.weight" in ttrace.reports("inspect", path, code=0)
    assert "[0 1 2 3 4]" in ttrace.reports("show", path, "positions", code=0)
    ttrace.reports("export", path, "-o", "out.npz", code=0)
    assert "layers.1.weight" in ttrace.reports("inspect", "out.npz", PYTHON, code=0)


def test_safetensors_need_no_python(ttrace, tmp_path):
    pair = [written(tmp_path, "a", "file.safetensors", weights()), written(tmp_path, "b", "sharded", weights())]
    assert ttrace.reports("check", *pair, "--python=/no/python", code=0).startswith("same\n")


def test_every_dtype_of_safetensors_is_read_as_torch_reads_it(ttrace, tmp_path):
    names = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    tensors = {name: torch.tensor([0.5, -3, 8]).to(getattr(torch, name)) for name in names}
    names = ("int64", "int32", "int16", "int8", "uint8", "bool")
    tensors |= {name: torch.tensor([0, 1, 1]).to(getattr(torch, name)) for name in names}
    save_file(tensors, tmp_path / "a.safetensors")
    torch.save(tensors, tmp_path / "a.pt")
    text = ttrace.reports("check", "a.safetensors", "a.pt", PYTHON, code=0)
    assert text.startswith("same\n") and "12 compared: 12 pass" in text and "note:" not in text


def header_of(path, **fields):
    """A file of safetensors with this header and 8 bytes of tensors."""
    header = json.dumps(fields).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))


HOSTILE = {
    "beyond the end": {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
    "another size": {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
    "backwards": {"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}},
    "negative": {"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
    "overflow": {"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}},
    "hidden by a zero": {"a": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}},
    "dimensions": {"a": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]}},
    "overlap": {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in "ab"},
    "no dtype": {"a": {"shape": [2], "data_offsets": [0, 8]}},
    "unknown dtype": {"a": {"dtype": "F8_E8M0", "shape": [8], "data_offsets": [0, 8]}},
    "a name": {"": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_says_otherwise_than_it_holds_is_refused(ttrace, tmp_path, kind):
    header_of(tmp_path / "a.safetensors", **HOSTILE[kind])
    save_file(weights(), tmp_path / "b.safetensors")
    assert ttrace.refuses("check", "a.safetensors", "b.safetensors").startswith("a.safetensors: ")


@pytest.mark.parametrize("size", [0, 5, 8, 100])
def test_a_file_that_is_cut_is_refused(ttrace, tmp_path, size):
    save_file(weights(), tmp_path / "b.safetensors")
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "b.safetensors").read_bytes()[:size])
    assert "a.safetensors: " in ttrace.refuses("check", "b.safetensors", "a.safetensors")


def test_a_shard_that_is_cut_within_its_last_page_is_refused(ttrace, tmp_path):
    sharded(tmp_path / "a", weights())
    save_file(weights(), tmp_path / "b.safetensors")
    (first, *_) = sorted((tmp_path / "a").glob("*.safetensors"))
    first.write_bytes(first.read_bytes()[:-4])
    assert "its bytes are not in the file" in ttrace.refuses("check", "b.safetensors", "a")


def test_an_index_that_says_otherwise_or_leads_out_of_its_folder_is_refused(ttrace, tmp_path):
    sharded(tmp_path / "a", weights())
    save_file(weights(), tmp_path / "b.safetensors")
    index = tmp_path / "a" / "model.safetensors.index.json"
    listed = json.loads(index.read_text())["weight_map"]
    file = listed.pop("layers.0.weight")
    for changed, what in (
        (listed, "holds 'layers.0.weight', of which"),
        (listed | {"layers.0.weight": file, "extra": file}, "'extra' is not in the file that it names"),
        (listed | {"layers.0.weight": "../b.safetensors"}, "names the file '../b.safetensors'"),
    ):
        index.write_text(json.dumps({"weight_map": changed}))
        assert what in ttrace.refuses("check", "b.safetensors", "a")


def test_code_in_a_pickle_is_not_run(ttrace, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, ("was-run",)

    torch.save({"a": torch.ones(2), "b": Bomb()}, tmp_path / "a.pt")
    save_file(weights(), tmp_path / "b.safetensors")
    assert "code is not run" in ttrace.refuses("check", "b.safetensors", "a.pt", PYTHON)
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "b.safetensors"]


def test_a_python_without_the_packages_is_one_line(ttrace, tmp_path):
    pair = [written(tmp_path, "a", "file.pt", weights()), written(tmp_path, "b", "file.pt", weights())]
    assert "--python PYTHON" in ttrace.refuses("check", *pair, "--python=/no/python")


def test_everything_equals_itself(ttrace, tmp_path):
    save_file(weights(), tmp_path / "a.safetensors")
    torch.save(weights(), tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        assert "every run equals itself" in ttrace.refuses("check", name, name, PYTHON)


def test_a_side_may_be_an_option(ttrace, tmp_path):
    pair = [written(tmp_path, "a", "file.safetensors", weights()), written(tmp_path, "b", "sharded", weights())]
    ttrace.reports("check", pair[1], "--reference", pair[0], code=0)
    for words in ([pair[0]], [*pair, "--reference", pair[0]], []):
        assert ttrace.refuses("check", *words).startswith("check: expected a reference and a candidate: ")
