"""What `ttrace collect` asks of the processes below it, as it stands in the environment variable TTRACE_CONFIG."""

import json
import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rewrite:
    """What the program is given in place of its own values (rewrite.py)."""

    directory: str  # of a trace, of which each rank uses its own file
    activations: bool  # floating inputs of modules, and in backward the gradients of their outputs
    parameters: bool  # before each iteration
    integers: bool  # integer inputs of the model


@dataclass(frozen=True)
class Choice:
    """What of all tensors is recorded (selection.py)."""

    only: tuple[str, ...]  # patterns of names of modules and parameters
    excluded: tuple[str, ...]
    kinds: frozenset[str]  # by name; empty: all
    depth: int | None
    reason: str  # why the others are not, as the trace says it
    sketch: bool = False  # large tensors are recorded as sketches
    whole: tuple[str, ...] = ()  # ... but those that these patterns fit
    no_grad: bool = False  # calls of models without gradients, and nothing else


@dataclass(frozen=True)
class Replay:
    """The iterations once more, in the same launch (replays.py)."""

    directory: str  # of its trace, absolute
    run_id: str
    perturb: int | None  # seed


@dataclass(frozen=True)
class Config:
    directory: str  # of the trace, absolute
    run_id: str
    iterations: frozenset[int]  # those to record, and where nobody has said which, further ones (zero_gradients.py)
    may_go_on: bool  # to further ones
    then: int  # light iterations behind the last of them (schedule.py)
    split: bool  # into a trace for each of them, in a directory of its own inside
    axes: str  # "tp=2,dp=2", or ""
    annotations: str  # path, or ""
    perturb: int | None  # seed
    perturb_at: str  # "input", "modules", or "rewritten": the values that `rewrite` gives are perturbed
    rewrite: Rewrite | None
    choice: Choice | None  # None: all are
    source_root: str  # directory that source files are named from
    library: str  # path of libttrace
    provenance: dict[str, Any]  # what the command line knows: command, start time, git commit, version
    watch_seed: int | None = None  # under `ttrace watch`, which says in a file what is recorded (schedule.py)
    replays: tuple[Replay, ...] = ()  # in this order, once the iterations are recorded

    @staticmethod
    def from_environment() -> "Config":
        values = json.loads(os.environ["TTRACE_CONFIG"])
        chosen = values["selection"]
        return Config(
            directory=values["directory"],
            run_id=values["run_id"],
            iterations=frozenset(values["iterations"] or [0]),
            may_go_on=not values["iterations"] and not values["split"],
            then=values["then"],
            split=values["split"],
            axes=values["axes"],
            annotations=values["annotations"],
            perturb=values["perturb"],
            perturb_at=values["perturb_at"],
            rewrite=Rewrite(**values["rewrite"]) if values["rewrite"] else None,
            choice=chosen
            and Choice(
                tuple(chosen["only"]),
                tuple(chosen["except"]),
                frozenset(chosen["kinds"]),
                chosen["depth"],
                chosen["reason"],
                chosen["sketch"],
                tuple(chosen["whole"]),
                chosen["no_grad"],
            ),
            source_root=values["source_root"],
            library=values["library"],
            provenance=values["provenance"],
            watch_seed=values["watch_seed"],
            replays=tuple(Replay(**each) for each in values["replays"]),
        )
