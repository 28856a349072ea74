"""Why near-INF of ATTNChecker's table 3 is another matter on a CPU with small random weights: the same faults with
LayerNorm as a GPU computes it, with larger queries and keys, in 16 bits, and in trained weights."""

import random

import torch

from evaluations.markdown import number, table

from . import gpu_norm, recovery
from .models import ARCHITECTURES, ERRORS, PAPER, PLACES, WIDTH, build, is_untrainable

FAULTS = 20  # of each cell

# By name: how many times as large queries and keys are, whether weights are trained, and the dtype of autocast.
CONDITIONS = {
    "a GPU's LayerNorm": (1, False, None),
    "and queries and keys 4 times as large": (4, False, None),
    "and 8 times as large": (8, False, None),
    "8 times, bf16": (8, False, torch.bfloat16),
    "8 times, fp16": (8, False, torch.float16),
    "trained weights": (1, True, None),
}


def projections(model, name: str) -> list[list[torch.nn.Module]]:
    """Of Q, of K and of V those of every layer; thrice the same where one makes all three."""
    modules = dict(model.named_modules())
    ends = [f".{ARCHITECTURES[name].attention}.{projection}" for projection in ARCHITECTURES[name].projections]
    return [[module for path, module in modules.items() if path.endswith(end)] for end in ends]


@torch.no_grad()
def enlarge(model, name: str, times: float) -> None:
    """Queries and keys become so many times as large."""
    of_query, of_key, _ = projections(model, name)
    if of_query == of_key:
        for module in of_query:
            module.weight[:, : 2 * WIDTH] *= times
    else:
        for module in of_query + of_key:
            module.weight *= times


@torch.no_grad()
def sizes(model, name: str) -> list[float]:
    """The root mean squares of Q, K and V, over all layers."""
    seen: list[list[torch.Tensor]] = [[], [], []]

    def keep(kind: int):
        def hook(module, inputs, output):
            third = output.split(WIDTH, -1)[kind] if output.shape[-1] > WIDTH else output
            seen[kind].append(third.float())

        return hook

    handles = [
        module.register_forward_hook(keep(kind))
        for kind, modules in enumerate(projections(model, name))
        for module in modules
    ]
    model(**recovery.batch(recovery.STEPS))
    for handle in handles:
        handle.remove()
    return [float(torch.cat(outputs).square().mean().sqrt()) for outputs in seen]


def row(name: str, times: float, is_trained: bool, dtype: torch.dtype | None) -> list[str]:
    model, draw = build(name), random.Random(name)
    enlarge(model, name, times)
    if is_trained:
        recovery.train(model, name)
    if dtype:
        model.forward = torch.autocast("cpu", dtype)(model.forward)
    cells = [", ".join(number(size, 2) for size in sizes(model, name))]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    for place in PLACES:
        bad = sum(is_untrainable(name, place, ERRORS["nINF"], draw, model, state) for _ in range(FAULTS))
        cells.append(f"{100 * bad / FAULTS:.0f} %")
    return cells


def measure() -> list[str]:
    with gpu_norm.installed():
        rows = [[what, name, *row(name, *how)] for what, how in CONDITIONS.items() for name in ARCHITECTURES]
    return render(rows)


def render(rows: list[list[str]]) -> list[str]:
    of_paper = [["the paper", name, "-", *(f"{share} %" for share in PAPER["nINF", name])] for name in ARCHITECTURES]
    return [
        f"The last rows of the table above again, {FAULTS} faults a cell, with LayerNorm as a GPU computes it "
        "(`papers/gpu_norm.py`, by the formulas of PyTorch's CUDA kernel; there was no GPU to run it on), and with "
        f"larger queries and keys, in 16 bits (autocast), and after the {recovery.STEPS} steps of training of the "
        "section below.",
        "",
        *table(["", "model", "rms of Q, K, V", *PLACES], rows + of_paper),
        "",
        "*V and CL* ended training above because of LayerNorm. The variance of a row with a huge value is beyond "
        "fp32. On a GPU it is infinite, its inverse root 0, and the row becomes LayerNorm's bias, with a gradient of "
        "0; on a CPU PyTorch combines partial moments by a product of that infinity and 0, and the row is NaN.",
        "",
        "*Q and K* depend on their size. The flip takes an element below 1 as many times up as the largest number is "
        "above 1, in each of the three dtypes. So a score overflows where query times key was 1 or more; an element "
        "from 1 to 2 becomes INF or NaN by itself; and one of 2 or more nearly 0. Random weights of width 64 make "
        "queries and keys far too small for it. Most of the paper's shares lie between those of queries and keys that "
        "are 4 and 8 times as large; at 8 times most scores are larger than 2, which they survive. Trained by this "
        "small task, values grow as queries do, and V and CL end training as well, which the paper's do not; how "
        "large its Q, K and V are it does not say.",
    ]
