"""What `abft`, `check` and `sdc` see of faults as GPUs make them, in outputs of linears, in gradients and in steps.

A correct run of tinygpt is recorded once. Each trace to be judged is that recording with one fault in each of some
tensors, which does not travel: so a tensor is seen where a finding or a differing tensor is that very one."""

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path

import torch

from evaluations.markdown import table
from evaluations.trace_edits import Rank, Recorded, edit_each, read_trace, write_edited

from .faulty_trace import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[3]
TTRACE = os.environ.get("TTRACE_PROGRAM", "ttrace")
MODEL = ["--layers", "4", "--unfused-attention", "--micro-batches", "2", "--steps", "1"]
LINEARS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")


def is_linear_output(tensor: Recorded) -> bool:
    name, kind = tensor.key
    return kind == "output" and name.rsplit(".", 1)[-1] in LINEARS


def is_weight(tensor: Recorded, kind: str) -> bool:
    return tensor.key[1] == kind and tensor.key[0].endswith(tuple(f"{linear}.weight" for linear in LINEARS))


# What is struck, and the dtypes it has in the recording, by kind.
PLACES = {
    "output": "outputs of linears, bf16",
    "main_grad": "main gradients of their weights, fp32",
    "param_after": "weights after the step, bf16",
}
GROUPS = (("output", "param_after"), ("main_grad",))  # struck in one trace: what no other is computed from


def is_struck(tensor: Recorded, kinds: tuple[str, ...]) -> bool:
    kind = tensor.key[1]
    return kind in kinds and (is_linear_output(tensor) if kind == "output" else is_weight(tensor, kind))


WAYS = {
    "abft": ["abft", "{suspect}"],
    "abft --block 16": ["abft", "{suspect}", "--block", "16"],
    "abft --block 4": ["abft", "{suspect}", "--block", "4"],
    "check -t default": ["check", "--reference", "{healthy}", "--candidate", "{suspect}", "-t", "default"],
}

Key = tuple[str, str, str]  # name, kind, micro-batch


def collect(trace: Path) -> None:
    program = [sys.executable, str(ROOT / "tools/tinygpt/train.py"), *MODEL]
    command = [TTRACE, "collect", "-q", "-o", str(trace), "--", *program]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def key_of(tensor: Recorded) -> Key:
    """As a line of a report's CSV names it: what is of an iteration has no micro-batch."""
    of_microbatch = tensor.key[1] in ("output", "input", "grad_input", "grad_output", "param_grad")
    return (*tensor.key, str(tensor.tensor_id.microbatch) if of_microbatch else "")


def struck(ranks: list[Rank], kinds: tuple[str, ...], fault: Fault, draw: random.Random):
    """The ranks with a fault in each tensor of these kinds, and the keys of those that it changed."""
    changed: set[Key] = set()

    def edit(_: int, tensor: Recorded) -> Recorded:
        value = tensor.value.clone()
        fault(value.view(-1), draw.randrange(value.numel()), draw)
        if not _same_bits(value, tensor.value):
            changed.add(key_of(tensor))
        return tensor.holding(value)

    edited = edit_each(ranks, lambda _, tensor: is_struck(tensor, kinds), edit)
    return {number: of_another_run(rank, draw) for number, rank in edited.items()}, changed


def of_another_run(rank: Rank, draw: random.Random) -> Rank:
    return Rank({**rank.attributes, "run_id": str(uuid.UUID(int=draw.getrandbits(128)))}, rank.tensors)


def _same_bits(one, other) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def wrong_in(words: list[str], report: Path) -> set[Key]:
    subprocess.run([TTRACE, *words, "--csv", str(report)], capture_output=True)
    with report.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {(row["name"], row["kind"], row["microbatch"]) for row in rows if row["verdict"] == "fail"}


def seen_by_sdc(healthy: Path, again: Path, suspect: Path) -> int:
    """How many tensors differ."""
    report = suspect.parent / "sdc.json"
    words = ["sdc", "--healthy", str(healthy), "--suspect", str(suspect), "--rerun", str(again), "--json", str(report)]
    subprocess.run([TTRACE, *words], capture_output=True)
    return json.loads(report.read_text())["differing_tensors"]


def count(home: Path, groups=GROUPS, faults=tuple(FAULTS)) -> dict[tuple, Counter]:
    """By place and fault: how many tensors were changed, and in how many of them each way sees it."""
    healthy, again = home / "healthy", home / "again"
    collect(healthy)
    ranks = read_trace(healthy)
    write_edited(
        healthy, {number: of_another_run(rank, random.Random(number)) for number, rank in enumerate(ranks)}, again
    )
    counts: dict[tuple, Counter] = {(kind, fault): Counter() for kind in PLACES for fault in faults}
    for kinds in groups:
        for fault in faults:
            with tempfile.TemporaryDirectory(dir=home) as directory:
                suspect, draw = Path(directory) / "suspect", random.Random(f"{kinds} {fault}")
                edited, changed = struck(ranks, kinds, FAULTS[fault], draw)
                write_edited(healthy, edited, suspect)
                seen = {"struck": changed}
                for way, words in WAYS.items():
                    filled = [word.format(healthy=healthy, suspect=suspect) for word in words]
                    seen[way] = changed & wrong_in(filled, Path(directory) / "report.csv")
                if seen_by_sdc(healthy, again, suspect) == len(changed):
                    seen["sdc"] = changed
                for what, keys in seen.items():
                    for _, kind, _ in keys:
                        counts[kind, fault][what] += 1
            print(fault, [dict(counts[kind, fault]) for kind in kinds], file=sys.stderr, flush=True)
    return counts


def measure() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="ttrace-faults-") as home:
        counts = count(Path(home))
    return render(counts)


def render(counts: dict[tuple, Counter]) -> list[str]:
    lines = [
        "A correct run of tinygpt (4 layers of width 64, bf16, fp32 masters, Adam) is recorded once, and struck: one "
        "fault in each tensor of a kind, at a place drawn at random, in its own dtype. Groups begin at multiples of "
        "their size, as what a lane or a warp writes does. After arXiv 2605.04213, in which single bits are fewer "
        "than four in ten of the corruptions of real GPUs, and NaN and INF one in a hundred. Each cell: in how many "
        "of the tensors that the fault changed at all a command finds it, in that very tensor."
    ]
    ways = [*WAYS, "sdc"]
    for kind, place in PLACES.items():
        rows = []
        for (of, fault), counted in counts.items():
            if of == kind:
                rows.append([fault, counted["struck"], *(counted[way] for way in ways)])
        lines += ["", f"### {place[0].upper()}{place[1:]}", "", *table(["fault", "struck", *ways], rows)]
    return [
        *lines,
        "",
        "`sdc` compares bits, and misses nothing where a healthy run is there. `abft` has no reference: of an output "
        "it sees what is larger than the rounding of a row or a column, with `--block` of so many elements of it; a "
        "main gradient is the sum of the micro-batches' and parameters after the step are what the step makes, "
        "element by element, which leaves rounding alone. `check -t default` holds each tensor to a reference within "
        "what its dtype rounds; a single element is held to its row's scale.",
    ]
