"""Sensitivity: the smallest fault in one tensor that is still caught, by depth and dtype, beside the peers' rules."""

import itertools
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from sweeps.configurations import GPT, Configuration, Model
from sweeps.runs import check

from .bench import Bench, Run
from .layers import PRECISIONS, Precision, deep
from .markdown import table
from .mutations import MUTATIONS, Mutation
from .peers import RULES, compare
from .shards import Shards, read_shards, write_shards
from .tolerance_file import keep_group
from .trace_edits import Recorded, read_trace, write_rank

TITLE = "Sensitivity"

PEERS = [rule for rule in RULES if rule.name.startswith("SGLang") or rule.name == "Megatron-LM bound"]
SCALING = next(mutation for mutation in MUTATIONS if mutation.name == "uniform scaling")
NAMES = ["ttrace", *(rule.name for rule in PEERS)]


# 256 rows of activations: of fewer, even one is much.
WIDE = "--seq 32 --micro-batch-size 8"


def tensors(layers: int) -> dict[str, tuple[str, str, int]]:
    """What is changed, in the middle of the model: name, kind, micro-batch."""
    layer = f"decoder.layers.{layers // 2}"
    return {"activation": (layer, "output", 0), "gradient": (f"{layer}.mlp.linear_fc1.weight", "main_grad", -1)}


# The gradients of one micro-batch that are changed in all layers at once.
ALL_LAYERS = re.compile(r"decoder\.layers\.\d+\.mlp\.linear_fc1\.weight")


def measure(bench: Bench) -> list[dict]:
    depths = [16] if bench.quick else [4, 16, 64]
    precisions = PRECISIONS[: 1 if bench.quick else 2]  # bf16, and fp32
    models = [(deep(GPT, layers, f"{WIDE} {p.arguments}"), layers, p) for p in precisions for layers in depths]
    bench.prepare((model, precision.dtype) for model, _, precision in models)
    rows = bench.map(
        "sensitivity", lambda item: rows_of(bench, *item), models, lambda item: f"{item[0].name} {item[2].name}"
    )
    return [row for some in rows for row in some]


def rows_of(bench: Bench, model: Model, layers: int, precision: Precision) -> list[dict]:
    run = bench.run(Configuration(model, precision.dtype, dict(tp=2), "--sp"))
    rows = []
    for what, tensor in tensors(layers).items():
        bed = TestBed(run, tensor)
        rows += [
            {
                "tensor": what,
                "layers": layers,
                "precision": precision.name,
                "fault": mutation.name,
                **smallest_caught(bed, mutation),
            }
            for mutation in MUTATIONS
        ]
        shutil.rmtree(bed.home)
    alone = next(row for row in rows if (row["tensor"], row["fault"]) == ("gradient", SCALING.name))
    together = {**alone["caught"], "ttrace": smallest_in_all_layers(run)}  # the peers look at each tensor alone
    rows.append({**alone, "tensor": "gradients of all layers", "caught": together})
    shutil.rmtree(run.home)
    return rows


def summary(rows: list[dict]) -> dict:
    """The smallest factor of an activation in bf16, with 16 layers, that is seen, minus one; None where none is."""
    (row,) = [
        row
        for row in rows
        if (row["fault"], row["tensor"], row["layers"], row["precision"])
        == ("uniform scaling", "activation", 16, "bf16")
    ]
    words = row["caught"]["ttrace"]
    return {"scale_seen": 2.0 ** int(words.removeprefix("1 + 2^")) if words and words != "always" else None}


class TestBed:
    """One tensor of a correct run in a trace of its own, to be judged beside the whole reference, to whose digest the
    tolerances belong; and of the reference in another, for the peers' rules."""

    def __init__(self, run: Run, tensor: tuple[str, str, int]):
        self.dtype = run.configuration.dtype
        self.reference = run.reference
        self.home = Path(tempfile.mkdtemp(dir=run.home))
        self.tolerance = self.home / "tolerance.yaml"
        shutil.copy(run.home / "annotations.yaml", self.home)
        shutil.copytree(self.home, self.home / "reference")
        keep_group(next(iter(run.tolerances.values())), tensor[0], tensor[1], self.tolerance)
        reference = read_shards(run.reference / "trace", *tensor)
        write_shards(reference, reference.values, self.home / "reference" / "trace")
        self.shards: Shards = read_shards(run.home / "trace", *tensor)

    def caught(self, values: list) -> dict[str, bool]:
        """By rule, whether these values of the shards are called wrong."""
        write_shards(self.shards, values, self.home / "trace")
        report = check(self.home, self.reference, self.tolerance)
        (row,) = compare(self.home / "reference", self.home)
        shutil.rmtree(self.home / "trace")
        verdicts = {rule.name: rule.violated(row, self.dtype) for rule in PEERS}
        return {"ttrace": report["counts"]["fail"] > 0, **verdicts}


def smallest_caught(bed: TestBed, mutation: Mutation) -> dict:
    """By rule, the smallest size such that it and all larger ones are caught, in words, or all that are caught where
    sizes have no order; None where none is, `always` where the tensor is called wrong without any fault. `limit` is the
    smallest that was tried."""
    verdicts = []
    for size in mutation.sizes:
        changed = mutation.apply(bed.shards.values, size)
        if changed is not None:
            verdicts.append((size, bed.caught(changed)))
    untouched = bed.caught(bed.shards.values)
    caught = {
        name: "always" if untouched[name] else words_of(mutation, [(size, by_rule[name]) for size, by_rule in verdicts])
        for name in NAMES
    }
    return {"caught": caught, "limit": mutation.words(verdicts[-1][0])}


def smallest_in_all_layers(run: Run) -> str | None:
    """The smallest factor of the gradients of one kind of weight in all layers that ttrace sees in the whole run, in
    words; None where it sees none. Their optimizer's gradients are left as they are: what an optimizer makes of wrong
    ones shows in its step. By these a factor that is a number of ranks may be meant, and a question counts as seen."""
    ranks = read_trace(run.home / "trace")
    home = Path(tempfile.mkdtemp(dir=run.home))
    shutil.copy(run.home / "annotations.yaml", home)
    verdicts = []
    for size in SCALING.sizes:
        for rank in ranks:
            write_rank(replace(rank, tensors=[scaled_in_all_layers(one, size) for one in rank.tensors]), home / "trace")
        report = check(home, run.reference, next(iter(run.tolerances.values())), allowed=(0, 1, 2))
        shutil.rmtree(home / "trace")
        verdicts.append((size, report["verdict"] != "same"))
        if not verdicts[-1][1]:
            break
    shutil.rmtree(home)
    return words_of(SCALING, verdicts)


def scaled_in_all_layers(tensor: Recorded, size: float) -> Recorded:
    name, kind = tensor.key
    is_changed = kind == "param_grad" and ALL_LAYERS.fullmatch(name)
    return tensor.holding(SCALING.apply([tensor.value], size)[0]) if is_changed else tensor


def words_of(mutation: Mutation, verdicts: list[tuple[object, bool]]) -> str | None:
    if mutation.ordered:
        found = [size for size, _ in itertools.takewhile(lambda verdict: verdict[1], verdicts)][-1:]
    else:
        found = [size for size, is_caught in verdicts if is_caught]
    return ", ".join(mutation.words(size) for size in found) or None


def render(rows: list[dict]) -> list[str]:
    lines = [
        "One tensor of a correct run (GPT, tp2 with sequence parallelism) is changed after the fact, and judged alone: "
        "the output of the middle layer, or the main gradient of its first MLP weight. Sizes are powers of two; a cell "
        "is the smallest such that it and all larger ones are caught. *never*: not even the largest tried. *always*: "
        "also without a fault, a false alarm. A cell equal to *smallest tried* may stand for something smaller still.",
        "",
        "- *gradients of all layers*: those of a micro-batch of the first MLP weights, all with the same factor, "
        "judged in the whole run. Their optimizer's gradients stay as they are, so that a factor of 2, the number of "
        "ranks, is a question.",
        "- *lost term of a sum*: the values are taken as a sum of n independent terms of equal variance, of which one "
        "is left out.",
        "- *zeroed rows*, *swapped chunk* (two neighbours exchanged): rows are all dimensions but the last.",
        "- *flipped exponent bit*: of one element of the size of the root mean square; all bits whose flip is caught, "
        "0 being the lowest. A flip that makes a small element smaller is an error of that element alone.",
        "",
    ]
    by_fault = [row for mutation in MUTATIONS for row in rows if row["fault"] == mutation.name]
    return lines + table(
        ["fault", "tensor", "precision", "layers", *NAMES, "smallest tried"],
        [
            [
                row["fault"],
                row["tensor"],
                row["precision"],
                row["layers"],
                *(row["caught"][name] or "never" for name in NAMES),
                row["limit"],
            ]
            for row in by_fault
        ],
    )
