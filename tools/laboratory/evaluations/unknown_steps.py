"""Unknown optimizers: whether steps that are judged by regression are called right and wrong as they should be.

tinygpt with optimizers whose rule ttrace does not know (`evaluations.unknown_step`), a seed for each optimizer and
dtype, correct and with a fault in the step. Reference and tolerances are those of one process of the same optimizer and
seed."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sweeps import warm
from sweeps.configurations import GPT, Configuration
from sweeps.runs import RunError, check, collect, collect_reference, estimate

from . import unknown_step
from .bench import Bench
from .markdown import number, table
from .tails import CONFIDENCE, clopper_pearson

TITLE = "Steps of unknown optimizers"
ELEMENTWISE = ["lion", "rmsprop", "adagrad", "nadam", "adamax"]
OF_MATRICES = ["muon"]  # of a shard it makes another update than of the whole
FAULTS = ["lr", "weight-decay", "vector-not-updated", "half-not-updated", "no-clipping"]
FIRST_SEED = 7_000  # no seed from here on was used to find the factors of src/tolerance/update_tolerance.h
ITERATIONS = 3

_LAYOUTS = {"tp": (dict(tp=2, dp=2), "--sp"), "dp": (dict(dp=2), ""), "pp": (dict(pp=2), "")}
STEP_REASONS = ("step-differs", "options-differ")


def layouts_of(optimizer: str) -> list[tuple[dict[str, int], str]]:
    return [_LAYOUTS[name] for name in (("dp", "pp") if optimizer in OF_MATRICES else ("tp", "dp", "pp"))]


def measure(bench: Bench) -> list[dict]:
    cells = bench.chosen(list(_cells(bench.quick)), " ".join)
    with warm.server():
        rows = bench.map("unknown steps", lambda cell: rows_of(bench, *cell), cells, " ".join)
    return [row for some in rows for row in some]


def _cells(quick: bool) -> Iterator[tuple[str, str]]:
    for optimizer in ["rmsprop"] if quick else [*ELEMENTWISE, *OF_MATRICES]:
        for dtype in ["bf16"] if quick else ["bf16", "fp32"]:
            yield optimizer, dtype


def seed_of(optimizer: str, dtype: str) -> int:
    return FIRST_SEED + list(_cells(quick=False)).index((optimizer, dtype))


def rows_of(bench: Bench, optimizer: str, dtype: str) -> list[dict]:
    """The correct layouts, and then the faults, in data parallelism."""
    arguments = f"--layers 2 --micro-batches 2 --steps {ITERATIONS} --seed {seed_of(optimizer, dtype)}"
    model = replace(GPT, name=f"gpt-{optimizer}", arguments=arguments, iterations=f"0-{ITERATIONS - 1}")
    home = bench.directory / f"{model.name}-{dtype}"
    right = [unknown_step.__file__, optimizer, "none"]
    collect_reference(home, model, dtype, program=right)
    estimate(home, model, dtype, home / "tolerance.yaml", program=right)
    wanted = [("none", *layout) for layout in layouts_of(optimizer)]
    wanted += [(fault, *_LAYOUTS["dp"]) for fault in FAULTS]
    rows = []
    for fault, sizes, flags in wanted:
        configuration = Configuration(model, dtype, sizes, flags)
        row = _judge(bench, configuration, home, [unknown_step.__file__, optimizer, fault])
        rows.append({"optimizer": optimizer, "dtype": dtype, "fault": fault, "layout": _layout(configuration), **row})
    shutil.rmtree(home)
    return rows


def _layout(configuration: Configuration) -> str:
    return " ".join([*(f"{axis}{size}" for axis, size in configuration.sizes.items()), *configuration.flags.split()])


def _judge(bench: Bench, configuration: Configuration, reference: Path, program: list[str]) -> dict:
    """`verdict`; how many updates were judged by regression, of all that no known rule explains; the worst ratio to
    what is allowed of those that passed; and of the root cause iteration, reason and message."""
    home = Path(tempfile.mkdtemp(dir=bench.directory))
    collect(configuration, home, program=program)
    try:
        report = check(home, reference, reference / "tolerance.yaml")
    except RunError as error:
        return {"verdict": "not judged", "why": str(error).splitlines()[-1]}
    finally:
        shutil.rmtree(home)
    steps, cause = report["optimizer_steps"], report["root_cause"]
    return {
        "verdict": report["verdict"],
        "regressed": steps["updates_regressed"],
        "unknown": steps["updates"] - steps["updates_checked"],
        "worst": steps["worst_regressed"],
        "iteration": cause["iteration"] if cause else None,
        "reason": cause["reason"] if cause else None,
        "why": cause["message"] if cause else None,
    }


def right(rows: list[dict]) -> list[dict]:
    return [row for row in rows if row["fault"] == "none"]


def summary(rows: list[dict]) -> tuple[int, int, int, int]:
    """Correct runs, those of them that are not the same, faults, and those that are named as the step's."""
    wrong = [row for row in rows if row["fault"] != "none"]
    return (
        len(right(rows)),
        sum(row["verdict"] != "same" for row in right(rows)),
        len(wrong),
        sum(row["verdict"] == "different" and row["reason"] in STEP_REASONS for row in wrong),
    )


def distinct(rows: list[dict]) -> set[tuple]:
    """Correct runs that were measured alike are one."""
    return {(row["optimizer"], row["dtype"], row.get("worst"), row["verdict"]) for row in right(rows)}


def render(rows: list[dict]) -> list[str]:
    correct, alarms, faults, named = summary(rows)
    outcomes = distinct(rows)
    wrong = sum(verdict != "same" for *_, verdict in outcomes)
    lines = [
        f"tinygpt of 2 layers, {ITERATIONS} iterations of 2 micro-batches, with optimizers whose rule ttrace does not "
        "know: their updates are judged by regression on the reference's (`src/step/regression.h`). Each optimizer "
        "and dtype has a seed of its own, none of which was used to find the margins. Muon makes another "
        "update of a shard than of the whole, so that tensor parallelism makes another program of it.",
        "",
        f"{correct} correct run{'s' * (correct != 1)}, {alarms} with a false alarm. They have {len(outcomes)} distinct "
        f"outcomes, as a pipeline may compute the numbers that data parallelism does: with {CONFIDENCE:.0%} confidence "
        f"fewer than {clopper_pearson(wrong, len(outcomes)):.1%} of such runs have a false alarm (Clopper-Pearson, as "
        "if they were drawn at random and independent, though those of one optimizer and dtype share a reference). "
        "*worst*: the largest of what is measured of the updates, over what is allowed. *regressed*: updates judged "
        "so, of those that no known rule explains.",
        "",
    ]
    planned = sum(len(layouts_of(optimizer)) + len(FAULTS) for optimizer, _ in _cells(quick=False))
    if len(rows) < planned:
        lines += [f"This is a part: {len(rows)} of the {planned} runs of the whole measurement.", ""]
    lines += table(
        ["optimizer", "dtype", "layout", "verdict", "regressed", "worst"],
        [
            [
                row["optimizer"],
                row["dtype"],
                row["layout"],
                row["verdict"] if row["verdict"] == "same" else f"**{row['verdict']}**",
                f"{row['regressed']} of {row['unknown']}" if "regressed" in row else "-",
                number(row.get("worst"), 2),
            ]
            for row in right(rows)
        ],
    )
    lines += [""] + [
        f"- {row['optimizer']} {row['dtype']} {row['layout']}: {row['why']}"
        for row in right(rows)
        if row["verdict"] != "same"
    ]
    lines += [
        "",
        f"Faults in the step of a data parallel run (dp2): {named} of {faults} are seen and named as the step's. A "
        "cell has the iteration of the root cause; what is in brackets was seen, and something else was blamed; `-`: "
        "not measured.",
        "",
        "- *lr*: updates 1.01 times as large. *weight-decay*: 1e-5 times the parameter is taken off, as 0.01 does at a "
        "learning rate of 1e-3.",
        "- *vector-not-updated*, *half-not-updated*: the first vector, and the last half of the rows of the first "
        "matrix.",
        "- *no-clipping*: the norm is computed, and the gradients are left as they are.",
        "",
    ]
    return lines + _fault_table(rows)


def _fault_table(rows: list[dict]) -> list[str]:
    by_cell: dict[tuple[str, str], dict[str, dict]] = {}
    for row in rows:
        if row["fault"] != "none":
            by_cell.setdefault((row["optimizer"], row["dtype"]), {})[row["fault"]] = row
    return table(
        ["optimizer", "dtype", *FAULTS],
        [[*cell, *(_seen(faults.get(fault)) for fault in FAULTS)] for cell, faults in by_cell.items()],
    )


def _seen(row: dict | None) -> str:
    if row is None:
        return "-"
    if row["verdict"] != "different":
        return "**not seen**" if row["verdict"] == "same" else "not judged"
    return str(row["iteration"]) if row["reason"] in STEP_REASONS else f"[{row['iteration']}: {row['reason']}]"
