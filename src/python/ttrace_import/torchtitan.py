"""torchtitan's numerics dumps (`--profiler.dump_numerics`: numerics/rank_0_activations.log), which hold the norms or
hashes of tensors, and no values."""

from collections.abc import Callable

from .options import Options
from .refusal import Refused, one_line
from .trace import TraceWriter


def import_torchtitan(options: Options, open_trace: Callable[[set[int]], TraceWriter]) -> None:
    """Raises Refused, whatever the source."""
    raise Refused(
        f"{one_line(str(options.sources[0]))}: torchtitan's dumps hold norms and hashes of tensors, and no values; "
        "expected a recording by `ttrace collect`, which needs no change of torchtitan"
    )
