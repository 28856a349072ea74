"""The SDC study's tables and figures with a simulated unhealthy node in place of real ones, by the same equations.

tinygpt with tensor parallelism of 2 is recorded on a healthy node, twice, and on each simulated one three times: in
lock step (every module is given the healthy run's tensors, and parameters before each step), with synchronized
parameters alone, and left to itself, as the study's three questions want it."""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import torch

from evaluations.markdown import number, table
from evaluations.trace_edits import read_trace
from sweeps import warm

from . import unhealthy

TTRACE = os.environ.get("TTRACE_PROGRAM", "ttrace")
PROGRAM = Path(__file__).with_name("unhealthy.py")
ITERATIONS, LAYERS = 8, 4
MODEL = ["--tp", "2", "--layers", str(LAYERS), "--micro-batches", "2", "--steps", str(ITERATIONS)]
WAYS = {"lock step": ("--inject", "--inject-params"), "parameters": ("--inject-params",), "free": ()}
SUBMODULES = {
    "fwd/attn": ("self_attention", "output"),
    "fwd/ffn": ("mlp", "output"),
    "bwd/attn": ("self_attention", "grad_input"),
    "bwd/ffn": ("mlp", "grad_input"),
}


def collect(trace: Path, node: str, options: list[str]) -> None:
    program = warm.command(PROGRAM, node, 1, *MODEL, ranks=2)
    command = [TTRACE, "collect", "-q", "-o", trace, "--axes", "tp=2", "--iterations", f"0-{ITERATIONS - 1}"]
    subprocess.run([*map(str, command), *options, "--", *program], check=True, stdout=subprocess.DEVNULL)


def compared(healthy: Path, suspect: Path) -> dict:
    report = suspect.with_suffix(".json")
    words = ["sdc", "--healthy", str(healthy), "--suspect", str(suspect), "--json", str(report)]
    words += ["--rerun", str(healthy.with_name("again"))]
    done = subprocess.run([TTRACE, *words], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return json.loads(report.read_text())


# (submodule, layer, iteration, micro-batch) -> of each rank, elements, mismatches, and their mean relative difference
Steps = dict[tuple[str, int, int, int], list[tuple[int, int, float]]]


def steps_of(healthy: Path, suspect: Path) -> Steps:
    """Equations 1 and 3 of every submodule at every micro-step, from the two recordings."""
    found: Steps = defaultdict(list)
    names = {
        (f"decoder.layers.{layer}.{module}", kind): (submodule, layer)
        for submodule, (module, kind) in SUBMODULES.items()
        for layer in range(LAYERS)
    }
    for of_healthy, of_suspect in zip(read_trace(healthy), read_trace(suspect), strict=True):
        right = {_place(tensor): tensor.value for tensor in of_healthy.tensors}
        for tensor in of_suspect.tensors:
            name = tensor.tensor_id.name.split(":")[0]
            if (name, tensor.key[1]) not in names or _place(tensor) not in right:
                continue
            one, other = right[_place(tensor)].double().view(-1), tensor.value.double().view(-1)
            differs = right[_place(tensor)].view(-1).view(torch.int16) != tensor.value.view(-1).view(torch.int16)
            relative = ((other - one) / one).abs()[differs & (one != 0)]  # of a zero there is no share
            severity = float(relative.mean()) if relative.numel() else 0.0
            where = (*names[name, tensor.key[1]], tensor.tensor_id.iteration, tensor.tensor_id.microbatch)
            found[where].append((one.numel(), int(differs.sum()), severity))
    return found


def _place(tensor) -> tuple:
    at = tensor.tensor_id
    return at.name, tensor.key[1], at.iteration, at.microbatch


def losses_of(trace: Path) -> list[float]:
    """Of each step, the sum of its micro-batches' parts; the loss is the same on both ranks."""
    losses = [0.0] * ITERATIONS
    for tensor in read_trace(trace)[0].tensors:
        if tensor.key == ("loss", "scalar"):
            losses[tensor.tensor_id.iteration] += float(tensor.value)
    return losses


def frequency(ranks: list[tuple[int, int, float]]) -> float:
    return sum(hit for _, hit, _ in ranks) / sum(elements for elements, _, _ in ranks)


def severity(ranks: list[tuple[int, int, float]]) -> float:
    return max(worst for _, _, worst in ranks)


def mean_frequency(steps: Steps, submodule: str, layer: int | None = None, iterations=range(ITERATIONS)) -> float:
    chosen = [
        frequency(ranks)
        for (of, at, iteration, _), ranks in steps.items()
        if of == submodule and layer in (None, at) and iteration in iterations
    ]
    return sum(chosen) / len(chosen) if chosen else 0.0


def worst_severity(steps: Steps, submodule: str, layer: int | None = None) -> float:
    chosen = [severity(ranks) for (of, at, *_), ranks in steps.items() if of == submodule and layer in (None, at)]
    return max(chosen, default=0.0)


def hit(steps: Steps, submodule: str) -> tuple[int, int]:
    """Micro-steps in which anything of the submodule differs, of all."""
    microsteps: dict[tuple, int] = defaultdict(int)
    for (of, _, *when), ranks in steps.items():
        if of == submodule:
            microsteps[tuple(when)] += sum(count for _, count, _ in ranks)
    return sum(count > 0 for count in microsteps.values()), len(microsteps)


def measure() -> list[str]:
    by_node: dict[str, dict] = {}
    losses: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ttrace-node-") as directory, warm.server():
        home = Path(directory)
        healthy = home / "healthy"
        for trace in (healthy, home / "again"):
            collect(trace, "healthy", [])
        losses["healthy"] = losses_of(healthy)
        for node in unhealthy.NODES:
            found = by_node[node] = {}
            for way, inject in WAYS.items():
                suspect = home / f"{node}-{way.replace(' ', '-')}"
                collect(suspect, node, [word for option in inject for word in (option, str(healthy))])
                found[way] = compared(healthy, suspect)
                if way == "lock step":
                    found["steps"] = steps_of(healthy, suspect)
                if way == "free":
                    losses[node] = losses_of(suspect)
                print(node, way, found[way]["differing_tensors"], file=sys.stderr, flush=True)
    return render(by_node, losses)


def render(by_node: dict[str, dict], losses: dict[str, list[float]]) -> list[str]:
    names = list(SUBMODULES)
    layers = [(node, layer) for node in by_node for layer in range(LAYERS)]

    def cells(what, *where) -> list[str]:
        return [number(what(by_node[where[0]]["steps"], submodule, *where[1:])) for submodule in names]

    def noise(node: str, way: str) -> str:
        report = by_node[node][way]
        return "INF" if report["worst_noise_is_infinite"] else number(report["worst_noise_to_signal"])

    def drift(node: str) -> list[str]:
        steps = by_node[node]["free"]["steps"]
        return [
            "-" if step["parameter_drift"] is None else number(step["parameter_drift"] / step["parameter_norm"])
            for step in steps
        ]

    spikes = []
    for node, found in by_node.items():
        first = range(unhealthy.STEPS_OF_BURST)
        rest = range(unhealthy.STEPS_OF_BURST, ITERATIONS)
        in_first = mean_frequency(found["steps"], "fwd/attn", iterations=first)
        in_rest = mean_frequency(found["steps"], "fwd/attn", iterations=rest)
        struck, all_ = hit(found["steps"], "fwd/attn")
        spikes.append([node, f"{struck} of {all_}", number(in_first), number(in_rest)])
    origins = [[node, len(found["lock step"]["origins"])] for node, found in by_node.items()]
    return [
        f"tinygpt (GPT of {LAYERS} layers, bf16, tensor parallelism of 2, {ITERATIONS} steps of 2 micro-batches) on "
        "four nodes that are simulated (`papers/unhealthy.py`): in what a linear returns, and in the gradient of its "
        "input, one rank of two has, by chance,",
        "",
        *(f"- *{name}*: {' '.join(node.__doc__.split())}" for name, node in unhealthy.NODES.items()),
        "",
        "The study has 15 real nodes, whose numbers cannot be had again; what is reproduced is each table and figure "
        "by the same equations, with numbers of these four. Its Table 3 and figure 7 (Mistral-7B, fine-tuned) have "
        "no counterpart: no such weights are here.",
        "",
        "### Tables 1 and 2: mean mismatch frequency, and largest mismatch severity, in lock step",
        "",
        *table(
            ["node", *(f"{name}, frequency" for name in names), *(f"{name}, severity" for name in names)],
            [[node, *cells(mean_frequency, node), *cells(worst_severity, node)] for node in by_node],
        ),
        "",
        "### Tables 6 to 9: the same by layer",
        "",
        *table(
            ["node", "layer", *(f"{name}, frequency" for name in names), *(f"{name}, severity" for name in names)],
            [[*at, *cells(mean_frequency, *at), *cells(worst_severity, *at)] for at in layers],
        ),
        "",
        "### Figures 3 and 4: when mismatches occur, of fwd/attn",
        "",
        *table(["node", "micro-steps with a mismatch", "frequency, first two steps", "frequency, later"], spikes),
        "",
        "### Figure 5: worst noise to signal of the gradients, as `ttrace sdc` says it",
        "",
        *table(
            ["node", "in lock step", "parameters synchronized, as the study has it", "left to itself"],
            [[node, *(noise(node, way) for way in WAYS)] for node in by_node],
        ),
        "",
        "### Figure 6: drift of the parameters, left to itself, over their norm",
        "",
        *table(["node", *(f"step {step}" for step in range(ITERATIONS))], [[node, *drift(node)] for node in by_node]),
        "",
        "### Figure 6: the loss, left to itself",
        "",
        *table(
            ["node", *(f"step {step}" for step in range(ITERATIONS))],
            [[node, *(f"{loss:.5f}" for loss in of_node)] for node, of_node in losses.items()],
        ),
        "",
        "### Calls that made an error out of equal inputs, as `ttrace sdc` names them in lock step",
        "",
        *table(["node", "calls"], origins),
        "",
        "As in the study: frequency is low and severity is not bounded by it, noise is a small part of the gradient "
        "unless an exponent's high bit is struck, and parameters drift while the loss shows nothing, but in a burst. "
        "Here they do not drift at a like rate: 8 steps are few, and what first moved them still shows.",
    ]
