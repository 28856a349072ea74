"""What the command line asks for."""

from dataclasses import dataclass
from pathlib import Path

from ttrace_torch.library import Kind

from .budget import Budget


@dataclass(frozen=True)
class Options:
    format: str
    sources: tuple[Path, ...]
    output: Path
    library: str  # path of libttrace
    pattern: str
    kind: Kind | None
    key: str
    axes: str  # "tp=2,dp=2", or ""
    partial: bool
    places: Path | None  # what gets the places of a checkpoint's tensors that are not copied (places.py)
    budget: Budget  # of the sources
