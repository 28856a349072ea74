"""Deep versions of the sweep's models, and what is measured along their layers."""

import re
from dataclasses import replace
from typing import Dict, List

from sweeps.configurations import GPT, LLAMA, MOE, Model

from tinygpt.options import DTYPES

ARCHITECTURES = {"GPT": GPT, "Llama": LLAMA, "MoE": MOE}
LAYER = re.compile(r"decoder\.layers\.(\d+)")


def deep(model: Model, layers: int) -> Model:
    """The model with this many layers, small otherwise: one micro-batch, short sequences."""
    arguments = f"{model.arguments} --layers {layers} --micro-batches 1 --seq 16 --micro-batch-size 4"
    return replace(model, name=f"{model.name}-{layers}-layers", arguments=arguments)


def along(pattern: str, values: Dict[str, float], layers: int) -> List[float]:
    """Of each layer's tensor: `pattern` is its name with {} for the number."""
    return [values.get(pattern.format(layer)) for layer in range(layers)]


def dtypes() -> List[str]:
    return list(DTYPES)
