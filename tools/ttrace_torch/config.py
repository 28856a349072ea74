"""What `ttrace collect` asks of the processes below it, as it stands in the environment variable TTRACE_CONFIG."""

import json
import os
from dataclasses import dataclass
from typing import FrozenSet, Optional


@dataclass(frozen=True)
class Config:
    directory: str  # of the trace, absolute
    run_id: str
    iterations: FrozenSet[int]  # those to record
    axes: str  # "tp=2,dp=2", or ""
    annotations: str  # path, or ""
    perturb: Optional[int]  # seed
    perturb_at: str  # "input" or "modules"
    library: str  # path of libttrace
    provenance: dict  # what the command line knows: command, start time, git commit, version

    @staticmethod
    def from_environment() -> "Config":
        values = json.loads(os.environ["TTRACE_CONFIG"])
        return Config(
            directory=values["directory"],
            run_id=values["run_id"],
            iterations=frozenset(values["iterations"]),
            axes=values["axes"],
            annotations=values["annotations"],
            perturb=values["perturb"],
            perturb_at=values["perturb_at"],
            library=values["library"],
            provenance=values["provenance"],
        )
