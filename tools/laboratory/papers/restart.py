"""ATTNChecker's figure 11 and section 5.5: what a fault costs that EEC-ABFT corrects, and what one costs after which a
checkpoint of the last step is loaded and the step made again. Layers of the base size; each time is the least of
several, so that what else the machine does counts little."""

import contextlib
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch

from evaluations.markdown import table

from . import extreme
from .models import ARCHITECTURES, ERRORS, build, struck
from .recovery import Run, protected

LAYERS, HEADS, WIDTH, TOKENS, BATCH, RATE = 2, 12, 768, 64, 4, 5e-5
REPEATS = 5


class Training:
    """Steps of one model, and its checkpoint."""

    def __init__(self, name: str, checkpoint: Path):
        self.model, self.architecture = build(name, LAYERS, HEADS, WIDTH, TOKENS), ARCHITECTURES[name]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)
        self.batch = {"input_ids": torch.randint(4, 500, (BATCH, TOKENS)), "labels": torch.arange(BATCH) % 2}
        self.checkpoint, self.draw, self.run = checkpoint, random.Random(name), Run()

    def step(self, is_checked: bool = False, is_struck: bool = False) -> None:
        with contextlib.ExitStack() as around:
            if is_struck:  # a query, whose product is the largest of those that are checked
                around.enter_context(struck(self.model, self.architecture, "Q", ERRORS["INF"], 0, self.draw))
            if is_checked:
                around.enter_context(protected(self.model, self.architecture, self.run))
            loss = self.model(**self.batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def save(self) -> None:
        torch.save([self.model.state_dict(), self.optimizer.state_dict()], self.checkpoint)

    def restore(self) -> None:
        for whole, state in zip([self.model, self.optimizer], torch.load(self.checkpoint), strict=True):
            whole.load_state_dict(state)


class Stopwatch:
    """A function, and the seconds that its calls took."""

    def __init__(self, function: Callable):
        self.function, self.seconds = function, 0.0

    def __call__(self, *operands):
        started = time.perf_counter()
        result = self.function(*operands)
        self.seconds += time.perf_counter() - started
        return result


def seconds(action: Callable[[], None]) -> float:
    watched = Stopwatch(action)
    watched()
    return watched.seconds


def costs(name: str) -> dict[str, float]:
    """The least seconds of a step, of its checks, of the correction of one fault, of saving and of restoring."""
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ttrace-restart-") as directory:
        training = Training(name, Path(directory) / "checkpoint")
        for _ in range(REPEATS):
            found = {"step": seconds(training.step)}
            checks, correction = Stopwatch(extreme.is_right), Stopwatch(extreme.corrected)
            with mock.patch.object(extreme, "is_right", checks), mock.patch.object(extreme, "corrected", correction):
                training.step(is_checked=True, is_struck=True)
            found |= {"checks": checks.seconds, "correction": correction.seconds}
            found |= {"save": seconds(training.save), "restore": seconds(training.restore)}
            least = {what: min(least.get(what, spent), spent) for what, spent in found.items()}
    assert training.run.detected == training.run.corrected == REPEATS, training.run
    return least


def measure() -> list[str]:
    return render({name: costs(name) for name in ARCHITECTURES})


def render(costs: dict[str, dict[str, float]]) -> list[str]:
    rows = []
    for name, cost in costs.items():
        step = cost["step"]
        restart = cost["save"] + cost["restore"] + step
        shares = [f"{100 * part / step:.1f} %" for part in (cost["checks"], cost["correction"], restart)]
        rows.append([name, f"{step:.2f} s", *shares, f"{restart / cost['correction']:.0f} times"])
    return [
        f"Models of {LAYERS} layers of width {WIDTH}, {HEADS} heads, {BATCH} sentences of {TOKENS} tokens, AdamW, on "
        f"one core; the least time of {REPEATS}, as a share of that of a plain step. The fault is an INF in Q. "
        "*Restart*: the checkpoint that each step saves, its loading, and the step again.",
        "",
        *table(["model", "a step", "checks", "correction of one fault", "restart", "restart over correction"], rows),
        "",
        "As in the paper a restart costs more than a step, and a correction, which looks again at one product, a few "
        "hundredths of one. Operators of PyTorch's on a CPU, one after the other, say nothing of fused kernels.",
    ]
