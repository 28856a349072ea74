"""The command line of train.py."""

import argparse

SIZES = {
    "layers": 4,
    "hidden": 64,
    "heads": 8,
    "kv-heads": 2,
    "vocabulary": 128,
    "sequence": 32,
    "micro-batch-size": 2,
    "micro-batches": 4,
    "steps": 1,
    "seed": 7,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="train.py", description="Trains a small model with megatron-core, one process a rank, on CPU."
    )
    add = parser.add_argument
    add("--model", choices=["gpt", "llama", "hybrid"], default="gpt", help="hybrid: HybridModel instead of GPTModel")
    for name, default in SIZES.items():
        add(f"--{name}", type=int, default=default, metavar="N")
    add("--bf16", action="store_true")
    add("--untied", action="store_true", help="the output layer has a weight of its own")
    add("--zero-biases", action="store_true", help="biases begin with zeros and norms with ones, as Megatron's own do")
    add("--print-times", action="store_true", help="seconds of each step, and the CPU's of its thread")
    add("--learning-rate", type=float, default=1e-3, metavar="X")
    add("--clip", type=float, default=1.0, metavar="NORM", help="gradients are clipped to this norm")
    add(
        "--softmax", choices=["vanilla", "off-by-one", "learnable"], default="vanilla", help="what is beside the scores"
    )
    add("--qk-norm", action="store_true", help="queries and keys are normalised, each head by itself")
    add("--mtp", type=int, metavar="N", help="layers of multi-token prediction, each of one further token")
    add("--config", action="append", default=[], metavar="NAME=VALUE", help="of TransformerConfig; may be repeated")
    add("--per-token-loss", action="store_true", help="gradients are summed over tokens, and divided at the end")

    parallel = parser.add_argument_group("parallelism").add_argument
    parallel("--tp", type=int, default=1, metavar="N", help="tensor parallel")
    parallel("--sp", action="store_true", help="sequence parallel, along tp")
    parallel("--pp", type=int, default=1, metavar="N", help="pipeline stages; what ranks are left are data parallel")
    parallel("--vpp", type=int, metavar="N", help="model chunks on each stage")
    parallel("--first-stage-layers", type=int, metavar="N", help="on the first stage, if not an equal share")
    parallel("--distributed-optimizer", action="store_true")
    parallel("--overlap-gradients", action="store_true", help="reduce gradients while backward runs")
    parallel("--overlap-gather", action="store_true", help="gather parameters when a module is about to use them")

    recompute = parser.add_argument_group("recomputation").add_argument
    recompute("--recompute", choices=["full", "selective"], help="whole layers, or the attention alone")

    experts = parser.add_argument_group("mixture of experts").add_argument
    experts("--experts", type=int, metavar="N", help="each layer's MLP is a mixture of that many")
    experts("--top-k", type=int, default=2, metavar="N")
    experts("--ep", type=int, default=1, metavar="N", help="expert parallel")
    experts("--etp", type=int, metavar="N", help="tensor parallel inside an expert, if not as outside")
    experts("--dispatcher", choices=["allgather", "alltoall"], default="alltoall")
    experts("--auxiliary-loss", type=float, default=0.01, metavar="X", help="its coefficient")
    return parser.parse_args()
