"""What tools/wheel runs with an installed wheel, beside the traces of README.md's session."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import h5py
import torch

import ttrace

assert "site-packages" in ttrace.__file__
for page in ("man1/ttrace-check.1", "man7/ttrace-tutorial.7"):
    assert pathlib.Path(sys.prefix, "share/man", page).is_file()
assert pathlib.Path(ttrace.__file__).with_name("include").joinpath("ttrace/ttrace.h").is_file()
page = importlib.metadata.metadata("ttrace").get_payload()
assert page.strip() and not re.search(r"\]\((?!https?:)", page), "a link that leads nowhere outside of a checkout"
# Whoever passes the wheel on passes these on: what is linked into its files says under which terms.
licences = {path.name for path in importlib.metadata.files("ttrace") if path.parent.name == "licenses"}
version = subprocess.run(["ttrace", "--version"], capture_output=True, text=True, check=True).stdout
parts = [part.split()[0].lower() for part in version.splitlines()[1].removeprefix("built with ").split(", ")]
for part in [*parts, "echarts", "zrender", "nanobind"]:
    name = "gcc" if part == "gnu" else part  # whose OpenMP and C++ libraries these are
    assert any(licence.startswith(name) for licence in licences), f"no licence of {part} among {sorted(licences)}"
candidate = ttrace.open("correct", annotations="megatron_gpt", reference=ttrace.open("reference"))
weight = candidate.tensor("layers.1.mlp.linear_fc1.weight", kind="main_grad")
assert len(weight.pieces) == 2
assert str(candidate.tensor("layers.1.mlp", kind="output").numpy().dtype) == "bfloat16"
report = ttrace.testing.assert_same("correct", "reference", annotations="megatron_gpt", tolerance="tolerance.yaml")
assert report.notes == (), report.notes
wrong = ttrace.check("buggy", "reference", annotations="megatron_gpt", tolerance="tolerance.yaml")
assert wrong.sentence.startswith("embedding.word_embeddings, output, micro-batch 0: "), wrong.sentence

# A recording beside a file of h5py's, which brings an HDF5 of its own.
layer = torch.nn.Linear(4, 4)
with h5py.File("mine.h5", "w") as mine, ttrace.record("block"):
    mine["before"] = [1, 2, 3]
    layer(torch.ones(2, 4)).sum().backward()
    mine["after"] = [4, 5]
with h5py.File("mine.h5") as mine, h5py.File(pathlib.Path("block", "rank-00000.h5")) as trace:
    assert mine["after"][1] == 5
    recorded = trace["tensors/0/0/forward/output/0/(model)"][()]
assert (ttrace.open("block").tensor("(model)", kind="output").numpy() == recorded).all()
print("the package: as it should be")
