"""Files with names that a pattern explains, of one rank and of several."""

import numpy
import pytest
import torch
from safetensors.torch import save_file

from traces import Tensor, record_run

VALUES = {f"layers.{i}.mlp": torch.arange(8.0).reshape(4, 2) + i for i in range(2)}


def save(path, tensor):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        numpy.save(path, tensor.numpy())
    else:
        torch.save(tensor, path)


def recorded(tmp_path, ranks=1, **run):
    """The same as ttrace's own recorder makes it: rows split over the ranks."""
    per_rank = [
        [Tensor(name, part.numpy()) for name, part in ((n, v.chunk(ranks)[rank]) for n, v in VALUES.items())]
        for rank in range(ranks)
    ]
    return record_run(tmp_path / "recorded", per_rank, **run)


@pytest.mark.parametrize("suffix", [".pt", ".npy"])
def test_a_tensor_a_file(ttrace, tmp_path, suffix):
    recorded(tmp_path)
    for name, value in VALUES.items():
        save(tmp_path / "dump" / "step0" / f"{name.replace('.', '/')}{suffix}", value)
    ttrace.imports("files", f"--pattern=step{{iteration}}/{{name}}{suffix}", "--kind=output", "--", "dump")
    assert ttrace.compares("recorded", "trace", code=0).startswith("same\n")


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".safetensors"])
def test_many_tensors_a_file(ttrace, tmp_path, suffix):
    recorded(tmp_path)
    path = tmp_path / f"dump{suffix}"
    if suffix == ".npz":
        numpy.savez_compressed(path, **{name: value.numpy() for name, value in VALUES.items()})
    else:
        (save_file if suffix == ".safetensors" else torch.save)(VALUES, path)
    ttrace.imports("files", "--kind=output", "--", path.name)
    assert ttrace.compares("recorded", "trace", code=0).startswith("same\n")


def test_ranks_iterations_micro_batches_and_kinds_are_captured(ttrace, tmp_path):
    tensors = []
    for iteration in range(2):
        for microbatch in range(2):
            for kind in ("output", "grad_output", "main_grad"):
                if kind == "main_grad" and microbatch:
                    continue
                value = torch.tensor([iteration, microbatch, 7.0])
                tensors.append(Tensor("mlp", value.numpy(), kind, iteration, -1 if kind == "main_grad" else microbatch))
                save(tmp_path / "dump" / f"it{iteration}" / f"mb{microbatch}-{kind}-mlp.pt", value)
    record_run(tmp_path / "recorded", [tensors])
    ttrace.imports("files", "--pattern=it{iteration}/mb{microbatch}-{kind}-{name}.pt", "--", "dump")
    text = ttrace.compares("recorded", "trace", code=0)
    assert "10 compared: 10 pass" in text


def test_ranks_make_a_logical_tensor(ttrace, tmp_path):
    recorded(tmp_path)
    for rank in range(2):
        for name, value in VALUES.items():
            save(tmp_path / "dump" / f"rank{rank}" / f"{name}.pt", value.chunk(2)[rank].clone())
    words = ("--pattern=rank{rank}/{name}.pt", "--kind=output", "--axes=tp=2", "--", "dump")
    ttrace.imports("files", *words)
    (tmp_path / "a.yaml").write_text("layers.*.mlp:\n  output: {tp_dim: 0}\n")
    assert ttrace.compares("recorded", "trace", "-a", "a.yaml", code=0).startswith("same\n")
    save(tmp_path / "dump" / "rank1" / "layers.1.mlp.pt", VALUES["layers.1.mlp"].chunk(2)[1] + 1e-3)
    ttrace.imports("files", *words, output="wrong")
    text = ttrace.compares("recorded", "wrong", "-a", "a.yaml", code=1)
    assert "first wrong tensor: layers.1.mlp output" in text and "on rank 1" in text


def test_what_export_writes_comes_back(ttrace, tmp_path):
    recorded(tmp_path)
    ttrace.reports("export", "recorded", "-o", "out.safetensors", code=0)
    pattern = "--pattern=*.safetensors::iteration-{iteration}/microbatch-{microbatch}/{kind}/{name}"
    ttrace.imports("files", pattern, "--", "out.safetensors")
    assert ttrace.compares("recorded", "trace", code=0).startswith("same\n")


def test_a_missing_rank_is_refused(ttrace, tmp_path):
    for rank in (0, 2):
        save(tmp_path / "dump" / f"rank{rank}.pt", {"a": torch.ones(2)})
    words = ("--pattern=rank{rank}.pt", "--kind=output")
    assert ttrace.refuses_to_import("files", *words, "--", "dump").startswith("rank 1 is not there; expected")
    assert ttrace.refuses_to_import("files", *words, "--axes=tp=2", "--", "dump").startswith("rank 1 is not there;")
    (tmp_path / "dump" / "rank2.pt").rename(tmp_path / "dump" / "rank999999999.pt")
    assert ttrace.refuses_to_import("files", *words, "--", "dump").startswith("1000000000 ranks;")


def test_what_the_pattern_does_not_say_is_refused_or_listed(ttrace, tmp_path):
    save(tmp_path / "dump" / "a.pt", torch.ones(2))
    save(tmp_path / "dump" / "b.npy", torch.ones(2))
    assert "of which kind" in ttrace.refuses_to_import("files", "--", "dump")
    words = ("files", "--kind=output")
    assert "nothing matches --pattern 'x{name}.pt'; there is a.pt" in ttrace.refuses_to_import(
        *words, "--pattern=x{name}.pt", "--", "dump"
    )
    assert "nothing says the tensor's name" in ttrace.refuses_to_import(*words, "--pattern=*.pt", "--", "dump")
    for wrong in ("{nam}.pt", "{name}{name}.pt", "{name.pt"):
        assert "at most once" in ttrace.refuses_to_import(*words, f"--pattern={wrong}", "--", "dump")
    printed = ttrace.imports(*words, "--pattern={name}.pt", "--", "dump")
    assert printed.out.endswith("left out: 1 files that the pattern does not match, such as b.npy\n")


def test_two_tensors_of_one_name_are_refused(ttrace, tmp_path):
    for step in range(2):
        save(tmp_path / "dump" / str(step) / "a.pt", torch.ones(2))
    assert "recorded before" in ttrace.refuses_to_import(
        "files", "--kind=output", "--pattern=*/{name}.pt", "--", "dump"
    )


def test_a_dtype_that_a_trace_cannot_hold_is_listed_and_said_in_the_trace(ttrace, tmp_path):
    torch.save({"a": torch.ones(2), "freqs": torch.ones(2, dtype=torch.uint64)}, tmp_path / "dump.pt")
    printed = ttrace.imports("files", "--kind=output", "--", "dump.pt")
    assert "left out: 1 a tensor of dtype uint64, such as freqs\n" in printed.out
    ones = numpy.ones(2, "float32")
    record_run(tmp_path / "recorded", [[Tensor("a", ones), Tensor("freqs", ones)]])
    text = ttrace.compares("recorded", "trace", code=0)
    assert "1 not seen" in text and "imported without it: a tensor of dtype uint64" in text


def test_byte_order_and_strides_do_not_matter(ttrace, tmp_path):
    values = numpy.arange(6, dtype="float32").reshape(2, 3)
    record_run(tmp_path / "recorded", [[Tensor("a", values), Tensor("b", values), Tensor("c", values)]])
    numpy.savez(tmp_path / "dump.npz", a=values.astype(">f4"), b=numpy.asfortranarray(values), c=values)
    ttrace.imports("files", "--kind=output", "--", "dump.npz")
    assert ttrace.compares("recorded", "trace", code=0).startswith("same\n")
