"""The bug corpus: the 14 silent bugs of TTrace's Table 1, each in the configuration that triggers it, with the tensor at
which it must be found. The mechanisms are in tinygpt, under the names of `--bug`."""

from dataclasses import dataclass
from typing import Dict, Optional

from sweeps.configurations import GPT, Configuration, Model


@dataclass(frozen=True)
class First:
    """The first wrong tensor, as the report's `root_cause` has it."""

    name: str
    kind: str
    microbatch: Optional[int]  # None: a tensor of the whole step
    iteration: int = 0


@dataclass(frozen=True)
class Case:
    number: int  # in Table 1
    bug: str  # tinygpt's --bug
    configuration: Configuration  # of the wrong run; without --bug it is the correct twin
    first: First


def _case(number: int, bug: str, model: Model, dtype: str, sizes: Dict[str, int], flags: str, first: First) -> Case:
    return Case(number, bug, Configuration(model, dtype, sizes, flags), first)


CASES = [
    _case(1, "embedding-mask", GPT, "bf16", dict(tp=2), "--sp", First("embedding.word_embeddings", "output", 0)),
]
