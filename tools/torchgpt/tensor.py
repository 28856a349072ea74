"""DTensor tensor parallelism with sequence parallelism. Activations stay DTensors from the embedding to the logits, so
that each tells how it is placed."""

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import local_map
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

SEQUENCE = Shard(1)


def parallelise_tensors(model, mesh, options):
    plan = {}
    if model.tok_embeddings is not None:
        plan["tok_embeddings"] = _rows(Replicate())
    for number in model.layers:
        plan |= {f"layers.{number}.{name}": style for name, style in _layer_plan().items()}
    if model.output is not None:
        plan["norm"] = SequenceParallel(use_local_output=False)
        plan["output"] = ColwiseParallel(
            input_layouts=SEQUENCE,
            output_layouts=Shard(-1) if options.loss_parallel else Replicate(),
            use_local_output=not options.loss_parallel,
        )
    parallelize_module(model, mesh, plan)
    for layer in model.layers.values():
        core = layer.attention.core
        heads = [Shard(2)]  # whole heads, as tp divides their number
        core.forward = local_map(core.forward, out_placements=heads, in_placements=(heads,) * 3, device_mesh=mesh)


def _layer_plan():
    return {
        "attention_norm": SequenceParallel(use_local_output=False),
        "attention": _gathered_input(),
        "attention.wq": ColwiseParallel(use_local_output=False),
        "attention.wk": ColwiseParallel(use_local_output=False),
        "attention.wv": ColwiseParallel(use_local_output=False),
        "attention.wo": _rows(Shard(-1)),
        "ffn_norm": SequenceParallel(use_local_output=False),
        "feed_forward": _gathered_input(),
        "feed_forward.w1": ColwiseParallel(use_local_output=False),
        "feed_forward.w3": ColwiseParallel(use_local_output=False),
        "feed_forward.w2": _rows(Shard(-1)),
    }


def _gathered_input():
    return PrepareModuleInput(input_layouts=SEQUENCE, desired_input_layouts=Replicate(), use_local_output=False)


def _rows(input_layouts):
    return RowwiseParallel(input_layouts=input_layouts, output_layouts=SEQUENCE, use_local_output=False)
