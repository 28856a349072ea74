"""Modules without parameters that a DataLoader calls to make samples are data, in its workers and in the program's own
process: torchvision's transforms are modules, and those of each sample would be calls in the model's first micro-batch.
What they make is seen where a model is given it."""

import functools
import threading
from typing import Any

from torch.utils.data._utils import fetch

from . import patches

_fetching = threading.local()  # `.depth` in a thread, of fetches one inside the other


def install() -> None:
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        patches.replace(fetcher, "fetch", _marked(fetcher.fetch))


def is_fetching() -> bool:
    """Whether this thread makes samples."""
    return getattr(_fetching, "depth", 0) > 0


def _marked(fetches: Any) -> Any:
    @functools.wraps(fetches)
    def marked(self: Any, possibly_batched_index: Any) -> Any:
        _fetching.depth = getattr(_fetching, "depth", 0) + 1
        try:
            return fetches(self, possibly_batched_index)
        finally:
            _fetching.depth -= 1

    return marked
