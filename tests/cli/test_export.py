"""`ttrace export`: logical tensors in files that safetensors and NumPy read."""

import numpy
import pytest
import safetensors.torch
import torch
from conftest import model, shards

from traces import Tensor, bfloat16, record_run

EXPORT = ("export", "candidate", "-a", "a.yaml")
WEIGHT = "iteration-0/main_grad/layers.0.mlp.weight"
KEYS = {
    "iteration-0/microbatch-0/output/embedding",
    "iteration-0/microbatch-0/output/layers.0.mlp",
    "iteration-0/microbatch-0/scalar/loss",
    WEIGHT,
}


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_shards_are_put_together(ttrace, tmp_path, candidate, suffix):
    candidate()
    out = tmp_path / f"out.{suffix}"
    assert ttrace.reports(*EXPORT, "-o", str(out), code=0).startswith(f"{out}: 4 tensors, put together from ")
    if suffix == "npz":
        with numpy.load(out) as file:
            tensors = dict(file)
    else:
        tensors = {key: value.numpy() for key, value in safetensors.torch.load_file(out).items()}
    assert set(tensors) == KEYS
    for key, tensor in zip(
        ["iteration-0/microbatch-0/output/embedding", WEIGHT], [model()[0], model()[3]], strict=True
    ):
        assert tensors[key].dtype == numpy.float32
        numpy.testing.assert_array_equal(tensors[key], tensor.values)
    assert tensors["iteration-0/microbatch-0/scalar/loss"].shape == ()


def test_the_same_bytes_every_time(ttrace, tmp_path, candidate):
    candidate()
    for suffix in ("safetensors", "npz"):
        first, second = (tmp_path / f"{name}.{suffix}" for name in ("first", "second"))
        for out in (first, second):
            ttrace.reports(*EXPORT, "-o", str(out), code=0)
        assert first.read_bytes() == second.read_bytes()


def test_every_dtype_keeps_its_bits(ttrace, tmp_path):
    bits = numpy.arange(256, dtype="uint8")
    names = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
    names += ["int8", "int16", "int32", "int64", "uint8"]
    tensors = [Tensor(name, bits.view(STORED.get(name, name)), dtype=name) for name in names]
    tensors.append(Tensor("bool", numpy.array([True, False])))
    record_run(tmp_path / "candidate", [tensors])
    ttrace.reports(*EXPORT, "-o", "out.safetensors", code=0)
    exported = safetensors.torch.load_file(tmp_path / "out.safetensors")
    for name in names:
        tensor = exported[f"iteration-0/microbatch-0/output/{name}"]
        assert tensor.dtype == getattr(torch, name)
        assert tensor.view(torch.uint8).tolist() == bits.tolist()
    assert exported["iteration-0/microbatch-0/output/bool"].tolist() == [True, False]


STORED = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


def test_numpy_gets_bfloat16_as_float32(ttrace, tmp_path):
    record_run(tmp_path / "candidate", [[bfloat16(Tensor("layer", numpy.array([1.5, -2, 0], "float32")))]])
    ttrace.reports(*EXPORT, "-o", "out.npz", code=0)
    with numpy.load(tmp_path / "out.npz") as file:
        values = file["iteration-0/microbatch-0/output/layer"]
    assert values.dtype == numpy.float32 and values.tolist() == [1.5, -2, 0]


def test_terms_are_added_in_float64(ttrace, tmp_path):
    (tmp_path / "a.yaml").write_text("layer:\n  output: {tp: partial}\n")
    terms = [[Tensor("layer", numpy.array([1, value], "float32"))] for value in (2**-30, 1)]
    record_run(tmp_path / "candidate", terms, axes="tp=2")
    ttrace.reports(*EXPORT, "-o", "out.safetensors", code=0)
    tensor = safetensors.torch.load_file(tmp_path / "out.safetensors")["iteration-0/microbatch-0/output/layer"]
    assert tensor.dtype == torch.float64 and tensor.tolist() == [2, 1 + 2**-30]


def test_only_what_was_chosen_is_written(ttrace, tmp_path, candidate):
    candidate()
    ttrace.reports(*EXPORT, "-o", "out.npz", "--kind", "main_grad", code=0)
    with numpy.load(tmp_path / "out.npz") as file:
        assert file.files == [WEIGHT]


def test_a_name_is_no_path(ttrace, tmp_path):
    record_run(tmp_path / "candidate", [[Tensor("../../layer\n", numpy.zeros(1, "float32"))]])
    ttrace.reports(*EXPORT, "-o", "out.npz", code=0)
    with numpy.load(tmp_path / "out.npz") as file:
        assert file.files == [r"iteration-0/microbatch-0/output/..\x2f..\x2flayer\x0a"]


def test_what_does_not_fit_together_is_listed(ttrace, tmp_path):
    tensors = shards(model())
    del tensors[1][0]
    record_run(tmp_path / "candidate", tensors, axes="tp=2")
    text = ttrace.reports(*EXPORT, "-o", "out.npz", code=0)
    assert "3 tensors" in text and "left out: embedding output, iteration 0, micro-batch 0: " in text


def test_a_file_that_cannot_be_written_is_refused_and_not_left_behind(ttrace, tmp_path, candidate):
    candidate()
    assert ttrace.refuses(*EXPORT, "-o", "out.pt") == (
        "-o 'out.pt': no known format; expected a name that ends in .safetensors or .npz"
    )
    for name in ("nowhere/out.npz", "nowhere/out.safetensors"):
        assert ttrace.refuses(*EXPORT, "-o", name).startswith(f"{name}: cannot be written")
    for suffix in ("npz", "safetensors"):
        full = tmp_path / f"full.{suffix}"
        full.symlink_to("/dev/full")
        assert ttrace.refuses(*EXPORT, "-o", full.name).startswith(f"{full.name}: cannot be written")
