"""Dumps of Transformer Engine's debug feature DumpTensors (transformer_engine/debug/features/dump_tensors.py, over
nvdlfw_inspect): `tensor_dumps/rank_0/iter_000003/decoder_layers_0_mlp_linear_fc1_activation.pt`, a dict with the tensor
before quantization as `high_precision`. In a layer's name it writes `_` for each dot, which cannot be taken back.

What is dumped are the operands and results of a module's products. They are not always what the module takes and gives:
the activation of a LayerNormLinear is what its norm returns. So they have names of their own, as members of the module:
`..._linear_fc1:activation`. Of several micro-batches in an iteration the last one's file is what remains."""

import re
from collections.abc import Callable
from pathlib import Path

from ttrace_torch.library import Kind, Pass, TensorId, microbatch_of

from .options import Options
from .refusal import Refused, first_line, one_line, require
from .source_files import files_below, is_folder
from .tensor_files import load_pickle
from .trace import TraceWriter

# By the tensor's name there: the kind, and what follows the module's name.
_KINDS = {
    "activation": (Kind.INPUT, ":activation"),
    "output": (Kind.OUTPUT, ":output"),
    "gradient": (Kind.GRAD_OUTPUT, ":gradient"),
    "dgrad": (Kind.GRAD_INPUT, ":dgrad"),
    "weight": (Kind.PARAM, ".weight"),
    "wgrad": (Kind.PARAM_GRAD, ".weight"),
}
_WHOLE = "high_precision"
_PATH = re.compile(
    r"(?:.*/)?rank_(?P<rank>[0-9]{1,9})/iter_(?P<iteration>[0-9]{1,9})/"
    rf"(?P<layer>[^/]+)_(?P<tensor>{'|'.join(_KINDS)})\.pt",
    re.DOTALL,
)


def import_transformer_engine(options: Options, open_trace: Callable[[set[int]], TraceWriter]) -> None:
    """Raises Refused."""
    found: list[tuple[int, Path, re.Match[str]]] = []
    others: list[Path] = []
    for source in options.sources:
        if not is_folder(source):
            raise Refused(f"{one_line(str(source))}: expected the folder tensor_dumps of DumpTensors, or one above it")
        for relative, path in files_below(source.absolute(), (".pt",)):
            name = _PATH.fullmatch(f"{source.absolute().name}/{relative}")
            if name is None:
                others.append(path)
            else:
                found.append((int(name["rank"]), path, name))
    if not found:
        raise Refused(
            f"{one_line(str(options.sources[0]))}: no dump of DumpTensors; expected "
            "rank_0/iter_000000/LAYER_activation.pt"
        )
    with open_trace({rank for rank, _, _ in found}) as trace:
        for path in others:
            trace.leave_out(path.name, "files of others")
        for rank, path, name in found:
            _import_dump(trace, rank, path, name)
        if trace.tensors == 0:
            raise Refused(
                f"{one_line(str(options.sources[0]))}: no tensor before quantization; expected dumps with "
                "high_precision_tensor: True"
            )
        trace.finish()


def _import_dump(trace: TraceWriter, rank: int, path: Path, name: re.Match[str]) -> None:
    torch, where = require("torch"), one_line(str(path))
    trace.budget.at(path)
    try:
        content = load_pickle(path)
    except Refused as error:
        raise Refused(f"{error} (dump with quantized_tensor: False)") from None
    except Exception as error:
        raise Refused(f"{where}: {first_line(error)}; expected a whole .pt file") from None
    if not isinstance(content, dict):
        raise Refused(f"{where}: expected a dict with {_WHOLE}, as DumpTensors writes")
    parts = [key for key in content if key != _WHOLE]
    if parts:
        trace.leave_out(f"{path.name}::{parts[0]}", "parts of quantized tensors", len(parts))
    if _WHOLE not in content:
        return
    if not isinstance(content[_WHOLE], torch.Tensor):
        raise Refused(f"{where}: {_WHOLE} is a {type(content[_WHOLE]).__name__}; expected a tensor")
    kind, suffix = _KINDS[name["tensor"]]
    tensor_id = TensorId(
        int(name["iteration"]), microbatch_of(kind, None), 0, Pass.FORWARD, kind, f"{name['layer']}{suffix}"
    )
    trace.record(rank, tensor_id, content[_WHOLE], str(path))
