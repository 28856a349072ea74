"""The bugs that `--bug NAME` switches on, each a real one, at the place where it was made.

Here are only the names. The mechanism sits where the bug would be: search for the name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bug:
    summary: str
    needs: str  # what the run must have for the bug to show
    can_show: Callable[[Any], bool]  # of the Options


BUGS = {
    "embedding-mask": Bug(
        summary="the mask of foreign token ids is rebuilt from ids that were already shifted to the rank's "
        "own vocabulary range (slapo pull request 80)",
        needs="--tp 2 or more",
        can_show=lambda options: options.tp > 1,
    ),
}
