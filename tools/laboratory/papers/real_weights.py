"""V-ABFT's section 6.7: does `ttrace abft` call right products of real models' weights wrong?

Matrices that packages of PyPI ship, each in a linear of PyTorch that is given random inputs, forward and backward, in
three dtypes; and one layer of GPT-2's size, as transformers builds it, with random weights."""

import argparse
import csv
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evaluations.markdown import table

TTRACE = os.environ.get("TTRACE_PROGRAM", "ttrace")
DTYPES = ("float32", "bfloat16", "float16")
SMALLEST = 16  # rows and columns of a matrix that counts
KINDS = ("output", "grad_input", "param_grad")
INPUTS = {"normal": "N(0, 1)", "positive": "|N(0, 1)|, as after a ReLU"}
MODELS = {
    "g2p-en": "2.1.0: GRU that spells words, float32",
    "rapidocr-onnxruntime": "1.4.4: PP-OCRv4, whose recogniser has attention, float32",
    "resemblyzer": "0.1.4: LSTM that tells speakers, float32",
    "silero-vad": "6.2.3: LSTM that hears speech, float32",
}
GPT2 = "GPT-2, one layer of the base size, random weights"


def matrices(package: str) -> Iterator:
    """The matrices of a package's models, as fp32; of convolutions none."""
    import torch

    folder = Path(importlib.util.find_spec(package.replace("-", "_")).origin).parent
    if package == "g2p-en":
        import numpy

        values = numpy.load(folder / "checkpoint20.npz").values()
    elif package == "rapidocr-onnxruntime":
        import onnx
        from onnx import numpy_helper

        files = sorted((folder / "models").glob("*.onnx"))
        values = [numpy_helper.to_array(one) for file in files for one in onnx.load(file).graph.initializer]
        values += [
            numpy_helper.to_array(attribute.t)
            for file in files
            for node in onnx.load(file).graph.node
            if node.op_type == "Constant"
            for attribute in node.attribute
            if attribute.name == "value"
        ]
    elif package == "resemblyzer":
        values = torch.load(folder / "pretrained.pt", map_location="cpu", weights_only=True)["model_state"].values()
    else:
        from safetensors.torch import load_file

        values = load_file(folder / "data" / "silero_vad_16k.safetensors").values()
    for value in values:
        matrix = torch.as_tensor(value)
        if matrix.dim() == 2 and matrix.is_floating_point() and min(matrix.shape) >= SMALLEST:
            yield matrix.float()


def train(package: str, dtype: str) -> None:
    import torch

    torch.manual_seed(0)
    if package == GPT2:
        return _train_gpt2(getattr(torch, dtype))
    weights = list(matrices(package))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linears = torch.nn.ModuleList()
            for weight in [weight for weight in weights for _ in INPUTS]:
                linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
                with torch.no_grad():
                    linear.weight.copy_(weight)
                self.linears.append(linear)
            self.to(getattr(torch, dtype))

        def forward(self):
            total = torch.zeros(())
            for number, linear in enumerate(self.linears):
                x = torch.randn(64, linear.in_features)
                y = linear((x.abs() if number % 2 else x).to(linear.weight.dtype).requires_grad_())
                total = total + (y.float() * torch.randn(y.shape) / 64).sum()
            return total

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    net().backward()
    optimizer.step()
    return None


def _train_gpt2(dtype) -> None:
    import torch
    import transformers

    config = transformers.GPT2Config(n_layer=1, vocab_size=500, bos_token_id=2, eos_token_id=2)
    config._attn_implementation = "eager"
    model = transformers.GPT2LMHeadModel(config).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 500, (2, 64))
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()


def verdicts(package: str, dtype: str, home: Path) -> Counter:
    """Of products, by verdict."""
    trace, report = home / "trace", home / "report.csv"
    program = [sys.executable, "-m", "papers.real_weights", package, dtype]
    subprocess.run([TTRACE, "collect", "-q", "-o", str(trace), "--", *program], check=True)
    subprocess.run([TTRACE, "abft", str(trace), "--csv", str(report)], capture_output=True)
    with report.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["kind"] in KINDS]
    of_linears = [row for row in rows if package == GPT2 or row["name"].startswith("linears.")]
    for row in of_linears:
        if row["verdict"] == "fail":
            print(package, dtype, row, file=sys.stderr, flush=True)
    return Counter(row["verdict"] for row in of_linears)


def measure() -> list[str]:
    rows, wrong, checked = [], 0, 0
    for package, what in {**MODELS, GPT2: "transformers 5.23.0"}.items():
        sizes = [tuple(matrix.shape) for matrix in matrices(package)] if package in MODELS else []
        cells = []
        for dtype in DTYPES:
            with tempfile.TemporaryDirectory(prefix="ttrace-weights-") as home:
                counts = verdicts(package, dtype, Path(home))
            alarms, all_ = counts["fail"], counts["fail"] + counts["pass"]
            wrong, checked = wrong + alarms, checked + all_
            cells.append(
                f"{alarms} of {all_}" + (f", {counts['untrusted']} not checkable" if counts["untrusted"] else "")
            )
        largest = max(sizes, key=lambda size: size[0] * size[1], default=(3072, 768))
        rows.append([package, what, len(sizes) or "", "x".join(map(str, largest)), *cells])
    header = ["package", "model", "matrices", "largest", *DTYPES]
    return [
        f"**{wrong} of {checked} right products called wrong.** Each matrix is the weight of two linears, with 64 "
        f"rows of {' and of '.join(INPUTS.values())}; three products each, forward and backward, in dtypes that it is "
        "rounded to. The paper has 0 % of 111 matrices of LLaMA-7B, of 5,379 products of GPT-2 and 5,937 of "
        "ViT-B/32: no package that can be had here ships such weights, and none are downloaded; so these are "
        "smaller, and trained all the same. Of GPT-2 there is the architecture, whose products are of that size.",
        "",
        *table(header, rows),
        "",
        "Each cell: products called wrong, of those checked, by the defaults.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("dtype")
    options = parser.parse_args()
    train(options.package, options.dtype)


if __name__ == "__main__":
    main()
