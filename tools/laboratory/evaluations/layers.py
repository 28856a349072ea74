"""Deep versions of the sweep's models, in every precision, and what is measured along their layers."""

import re
from dataclasses import dataclass, replace

from sweeps.configurations import GPT, LLAMA, MOE, Model

ARCHITECTURES = {"GPT": GPT, "Llama": LLAMA, "MoE": MOE}
LAYER = re.compile(r"decoder\.layers\.(\d+)")


@dataclass(frozen=True)
class Precision:
    name: str
    dtype: str  # as for `Configuration`
    color: str
    arguments: str = ""


PRECISIONS = [
    Precision("bf16", "bf16", "#4477aa"),
    Precision("fp32", "fp32", "#ee6677"),
    Precision("fp16", "fp16", "#228833"),
    Precision("fp8", "fp8", "#ccbb44"),
]


def deep(model: Model, layers: int, arguments: str = "") -> Model:
    """The model with this many layers and these arguments, small otherwise: one micro-batch, short sequences."""
    sizes = f"--layers {layers} --micro-batches 1 --seq 16 --micro-batch-size 4"
    name = "-".join([model.name, str(layers), "layers", *arguments.replace("--", "").split()])
    return replace(model, name=name, arguments=f"{model.arguments} {sizes} {arguments}")


def along(pattern: str, values: dict[str, float], layers: int) -> list[float]:
    """Of each layer's tensor: `pattern` is its name with {} for the number."""
    return [values.get(pattern.format(layer)) for layer in range(layers)]
