"""Recording of a part of a program, in the program's own process: `ttrace.record` of the Python package."""

import os
import uuid
from pathlib import Path
from typing import Any

import torch

from . import patches, problems, processes
from .clock import Chunk
from .collector import Collector
from .config import Config
from .coordinates import rank_and_world_size
from .explicit import ExplicitRecording
from .problems import CollectError
from .start import start
from .tensors import local_part

_MOST_ITERATIONS = 10_000  # as in `ttrace collect`


class Block:
    """What runs between `begin` and `end`. One at a time: at its end, all patches and hooks are taken back."""

    def __init__(self, config: Config):
        self._config = config
        self._collector: Collector | None = None
        self._had_gradients: list[str] = []  # parameters, before the first forward

    def begin(self) -> ExplicitRecording:
        problems.will_raise(self._config.directory)
        self._collector, modules = start(self._config)
        self._collector.on_first_call.append(self._look_for_gradients)
        return ExplicitRecording(self._collector, modules)

    def end(self, raised: bool) -> list[str]:
        """`raised`: the block has, and its trace is not whole. Returns what else keeps it from being whole."""
        collector, self._collector = self._collector, None
        if raised:
            collector.stop(None)
        elif self._had_gradients and not collector.clock.ever_stepped:
            collector.stop(
                f"before the block there were gradients of {problems.listed(self._had_gradients)}; expected none, as "
                "after zero_grad(): what it adds to them is not seen"
            )
        else:
            collector.safely(collector.end_block)
        patches.take_back()
        processes.withdraw()
        found = problems.problems_of(self._config.directory)
        return found or ([] if raised or collector.is_whole else ["the recording ended before the block"])

    def _look_for_gradients(self, chunk: Chunk) -> None:
        for name, parameter in chunk.parameters():
            gradient = parameter.grad
            if gradient is not None and self._collector.clock.iteration == 0 and local_part(gradient).any():
                self._had_gradients.append(name)


def configuration(directory: str, library: str, axes: str, perturb: int | None, provenance: dict[str, Any]) -> Config:
    """The same on every rank. Makes `directory`. Raises CollectError."""
    return Config(
        directory=directory,
        run_id=_agree_on_run(directory),
        iterations=frozenset(range(_MOST_ITERATIONS)),
        may_go_on=False,
        then=0,
        split=False,
        axes=axes,
        annotations="",
        perturb=perturb,
        perturb_at="input",
        rewrite=None,
        choice=None,
        source_root=_top_of_repository(Path.cwd()),
        library=library,
        provenance=provenance,
    )


def _top_of_repository(folder: Path) -> str:
    """`folder` itself where it lies in no git repository: as `ttrace collect` has it."""
    return str(next((top for top in (folder, *folder.parents) if (top / ".git").exists()), folder))


def _agree_on_run(directory: str) -> str:
    """Returns the id of the run, which rank 0 makes up, with the directory."""
    rank, world_size = rank_and_world_size()
    if world_size > 1 and not torch.distributed.is_initialized():
        raise CollectError(
            f"this is rank {rank} of {world_size}, and torch.distributed is not initialised; expected "
            "init_process_group before: the ranks of a trace agree on its run"
        )
    said = [str(uuid.uuid4()), _make(directory) if rank == 0 else ""]
    if world_size > 1:
        torch.distributed.broadcast_object_list(said, src=0)
    run_id, problem = said
    if problem:
        raise CollectError(problem)
    return run_id


def _make(directory: str) -> str:
    """Why `directory` cannot be made, or ""."""
    try:
        os.makedirs(directory, exist_ok=True)
        is_empty = not os.listdir(directory)
    except OSError as error:
        return f"{directory}: cannot be made: {error.strerror}"
    return "" if is_empty else f"{directory}: already exists; expected a new or an empty directory"
