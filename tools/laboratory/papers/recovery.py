"""ATTNChecker's figure 6: the loss of transformers' Bert, GPT-2, GPT-Neo and Roberta while faults strike attention,
with and without EEC-ABFT, beside that of a run without faults.

Small models learn which sentences of random tokens have a certain one. In every second step one element of Q, K, V, AS
or CL becomes INF, NaN or near-INF, each of the fifteen once."""

import contextlib
import math
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import torch

from evaluations.markdown import number, table

from . import extreme, gpu_norm
from .models import ARCHITECTURES, ERRORS, LAYERS, PLACES, SEQUENCE, Architecture, build, struck, with_value

STEPS, BATCH, RATE = 30, 32, 3e-3
FAULTS = STEPS // 2
TOKEN = 7  # whose occurrence is the label


@dataclass
class Run:
    losses: list[float] = field(default_factory=list)
    checked: int = 0  # products
    detected: int = 0  # of these, the ones whose sums were wrong
    corrected: int = 0  # of these, the ones whose sums are right again


@contextlib.contextmanager
def protected(model, architecture: Architecture, run: Run) -> Iterator[None]:
    """While it runs, the products of attention that struck() strikes are checked and corrected: what the projections
    return, and of each head the scores and the context. It is entered after struck(), so that it sees its faults."""

    def check(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        run.checked += 1
        with torch.no_grad():
            if extreme.is_right(product, a, b):
                return product
            repaired = extreme.corrected(product, a, b)
            run.detected += 1
            run.corrected += extreme.is_right(repaired, a, b)
        return with_value(product, repaired)

    def of_projection(module, inputs, output):
        x, weight = inputs[0], module.weight.T if isinstance(module, torch.nn.Linear) else module.weight
        if module.bias is not None:  # one more row of the weight
            x, weight = torch.cat([x, torch.ones_like(x[..., :1])], -1), torch.cat([weight, module.bias[None]])
        return check(output, x, weight)

    names = [f".{architecture.attention}.{projection}" for projection in set(architecture.projections)]
    handles = [
        module.register_forward_hook(of_projection)
        for path, module in model.named_modules()
        if path.endswith(tuple(names))
    ]
    matmul = torch.matmul

    def product(a, b, **options):
        result = matmul(a, b, **options)
        return check(result, a, b) if result.dim() == 4 else result

    torch.matmul = product
    try:
        yield
    finally:
        torch.matmul = matmul
        for handle in handles:
            handle.remove()


def batch(step: int) -> dict[str, torch.Tensor]:
    """Sentences of random tokens; in every second one TOKEN is a quarter of them."""
    draw = torch.Generator().manual_seed(step)
    tokens, labels = torch.randint(TOKEN + 1, 500, (BATCH, SEQUENCE), generator=draw), torch.arange(BATCH) % 2
    is_token = (torch.rand(tokens.shape, generator=draw) < 0.25) & (labels[:, None] == 1)
    return {"input_ids": tokens.masked_fill(is_token, TOKEN), "labels": labels}


def train(model, name: str, errors: Collection[str] = (), is_corrected: bool = False) -> Run:
    """`errors`: of these types are the faults, of each place and type equally many."""
    architecture, run = ARCHITECTURES[name], Run()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    draw = random.Random(name)
    kinds = [(place, error) for place in PLACES for error in errors]
    faults = iter(draw.sample(kinds * (FAULTS // len(kinds)), FAULTS) if kinds else [])
    torch.manual_seed(0)  # of dropout
    for step in range(STEPS):
        with contextlib.ExitStack() as around:
            if errors and step % 2 == 1:
                place, error = next(faults)
                layer = draw.randrange(LAYERS)
                around.enter_context(struck(model, architecture, place, ERRORS[error], layer, draw))
            if is_corrected:
                around.enter_context(protected(model, architecture, run))
            loss = model(**batch(step)).loss
        run.losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return run


# By name: the errors that strike, and whether they are corrected.
WAYS = {
    "without faults": ((), True),
    "corrected": (tuple(ERRORS), True),
    "not corrected": (tuple(ERRORS), False),
    "near-INF alone, not corrected": (("nINF",), False),
}
SHOWN = (*range(0, STEPS, 5), STEPS - 1)


def farthest(run: Run, healthy: Run) -> float:
    """The largest difference of two runs' losses, over the steps in which both have one."""
    return max(abs(a - b) for a, b in zip(run.losses, healthy.losses, strict=True) if math.isfinite(a))


def first_nan(run: Run) -> str:
    return next((f"step {step}" for step, loss in enumerate(run.losses) if math.isnan(loss)), "never")


def measure() -> list[str]:
    with gpu_norm.installed():
        runs = {name: {way: train(build(name), name, *how) for way, how in WAYS.items()} for name in ARCHITECTURES}
    return render(runs)


def render(runs: dict[str, dict[str, Run]]) -> list[str]:
    counts, curves = [], []
    for name, ways in runs.items():
        healthy, corrected, uncorrected, near_infinity = ways.values()
        alarms = f"{healthy.detected} of {healthy.checked:,}"
        found = [f"{count} of {FAULTS}" for count in (corrected.detected, corrected.corrected)]
        apart = [number(farthest(run, healthy)) for run in (corrected, near_infinity)]
        counts.append([name, alarms, *found, apart[0], first_nan(uncorrected), apart[1], first_nan(near_infinity)])
        curves += [[name, way, *(f"{run.losses[step]:.6f}" for step in SHOWN)] for way, run in ways.items()]
    return [
        "The models of the section above, small, of random weights at first, in fp32 with dropout and with LayerNorm "
        f"as on a GPU, learn by AdamW to tell sentences that have a certain token, in {STEPS} steps of {BATCH} "
        "sentences. In every second step a fault strikes one element, at random, of Q, K, V, AS or CL in one layer, "
        f"{FAULTS} in all: INF, NaN or near-INF, each once in each place. EEC-ABFT (`papers/extreme.py`: sections 4.2 "
        "and 4.3 in PyTorch) checks what the projections return, the scores and the context by checksums of columns "
        "and rows, which pass through each product from its operands, within what rounding allows; the element "
        "becomes what its line's checksum and the other elements leave for it. *Without faults*: it checks, and "
        "nothing strikes.",
        "",
        *table(
            [
                "model",
                "called wrong without faults, of products",
                "detected",
                "corrected",
                "loss off by at most, corrected",
                "not corrected: NaN from",
                "near-INF alone, not corrected: loss off by at most",
                "NaN from",
            ],
            counts,
        ),
        "",
        "Figure 6, the loss at some of the steps:",
        "",
        *table(["model", "run", *(f"step {step}" for step in SHOWN)], curves),
        "",
        "As in the paper, a run whose faults are corrected has the loss of one without any: a corrected element is "
        "right to within rounding, not in every bit, and what training makes of that rounding is all that is left.",
    ]
