"""False alarms: every correct configuration of the sweep, checked with the tolerances of every estimator, and by the
peers' rules."""

import hashlib
import shutil

from sweeps.configurations import Configuration, configurations

from .bench import Bench, Run
from .margins import field, ratios_of
from .markdown import number, table
from .peers import SCOPES, STEP, in_scope, violations
from .tails import false_alarms

TITLE = "False alarms"

WIDTH = 0.25  # of a bin
BINS = [WIDTH * i for i in range(12)]  # up to the margin


def measure(bench: Bench) -> list[dict]:
    chosen = bench.chosen(configurations(bench.quick), lambda configuration: configuration.name)
    bench.prepare([(c.model, c.dtype) for c in chosen], every_estimator=not bench.quick)
    return bench.map("configuration", lambda configuration: row_of(bench, configuration), chosen, lambda c: c.name)


def row_of(bench: Bench, configuration: Configuration) -> dict:
    run = bench.run(configuration)
    estimators = {name: judged(run, name) for name in run.tolerances}
    report = run.report()
    row = {
        "name": configuration.name,
        "ranks": configuration.world_size,
        "compared": report["counts"]["compared"],
        "coverage": report["coverage"],
        "estimators": estimators,
        "false_alarms": sum(not judged["same"] for judged in estimators.values()),
        "violating": {
            rule: {scope: len(in_scope(tensors, scope)) for scope in SCOPES}
            for rule, tensors in violations(run, report).items()
        },
    }
    shutil.rmtree(run.home)
    return row


def judged(run: Run, estimator: str) -> dict:
    """`largest_ratio` is that of error to allowed over trusted tensors, optimizer steps aside. `ratios` counts tensors
    by what margins.py calls a ratio, from BINS on; `largest_of_all` is the largest of these. Configurations with equal
    `outcome`s have equal errors in every tensor."""
    report = run.report(estimator)
    ratios = [
        float(row["ratio"])
        for row in run.measured()
        if row["ratio"] and row["verdict"] in ("pass", "fail") and row["kind"] not in STEP
    ]
    cause = report["root_cause"]
    margin = float(field("margin", run.tolerances[estimator]))
    tensors = ratios_of(run.home / "measured.csv", margin)
    of_tensors = [tensor["ratio"] for tensor in tensors.values()]
    outcome = repr(sorted((key, tensor["rel_err"], tensor["expected"]) for key, tensor in tensors.items()))
    return {
        "margin": margin,
        "ratios": [sum(low <= ratio < low + WIDTH for ratio in of_tensors) for low in BINS],
        "largest_of_all": max(of_tensors),
        "outcome": hashlib.sha256(outcome.encode()).hexdigest()[:16],
        "same": report["verdict"] == "same",
        "untrusted": report["counts"]["untrusted"],
        "largest_ratio": max(ratios, default=None),
        "first_wrong": cause["message"] if cause else None,
    }


def summary(rows: list[dict]) -> dict:
    return {"configurations": len(rows), "false_alarms": sum(row["false_alarms"] > 0 for row in rows)}


def render(rows: list[dict]) -> list[str]:
    total = summary(rows)
    names = list(rows[0]["estimators"])
    lines = [
        "Correct parallel programs on real processes over gloo, each collected once and checked with the tolerances of "
        f"{'each estimator' if len(names) > 1 else 'the estimator'} ({', '.join(names)}). *error / allowed* is the "
        "largest of a trusted tensor, optimizer steps aside.",
        "",
        f"{total['configurations']} configurations, {total['false_alarms']} with a false alarm.",
        "",
    ]
    lines += table(
        [
            "configuration",
            "ranks",
            "compared",
            "coverage",
            *(f"{name}: {column}" for name in names for column in ("verdict", "error / allowed", "untrusted")),
        ],
        [
            [
                row["name"],
                row["ranks"],
                row["compared"],
                f"{row['coverage']:.0%}",
                *(cell for name in names for cell in cells(row["estimators"][name])),
            ]
            for row in rows
        ],
    )
    lines += ["", *distribution(rows, names)]
    alarms = [
        f"- {row['name']}, {name}: {judged['first_wrong']}"
        for row in rows
        for name, judged in row["estimators"].items()
        if not judged["same"]
    ]
    return lines + (["", "Called wrong although correct:", "", *alarms] if alarms else [])


def distinct(rows: list[dict], estimator: str) -> dict[str, float]:
    """The largest ratio of each distinct outcome. A pipeline, or ranks with micro-batches of their own, compute the
    same numbers as one process does, and prove nothing twice."""
    return {row["estimators"][estimator]["outcome"]: row["estimators"][estimator]["largest_of_all"] for row in rows}


def distribution(rows: list[dict], names: list[str]) -> list[str]:
    """Of ratios, which the margin was chosen from."""
    margin = rows[0]["estimators"][names[0]]["margin"]
    tails = {name: false_alarms(list(distinct(rows, name).values()), margin) for name in names}
    dtypes = sorted({row["name"].split()[1] for row in rows})

    def counts(name: str, dtype: str) -> list[int]:
        of_dtype = [row["estimators"][name]["ratios"] for row in rows if row["name"].split()[1] == dtype]
        return [sum(column) for column in zip(*of_dtype, strict=True)]

    return [
        "Tensors by their ratio, rel_err / max(estimate, floor): what is above the margin, "
        f"{margin:g}, is called wrong. Each tensor has the largest of its micro-batches and iterations.",
        "",
        *table(
            ["estimator", "dtype", *(f"{low:g}" for low in BINS)],
            [[name, dtype, *counts(name, dtype)] for name in names for dtype in dtypes],
        ),
        "",
        *(
            f"{name}: the largest ratio of all is "
            f"{max(row['estimators'][name]['largest_of_all'] for row in rows):.3g}. The {len(rows)} configurations "
            f"have {tail['configurations']} distinct outcomes: the others compute every tensor with the errors of one "
            f"of these. {tail['exceeding']} exceed the margin, so that with 95 % confidence fewer than "
            f"{tail['at_most']:.2%} of such programs do (Clopper-Pearson, over distinct outcomes), if they were drawn "
            "at random, which they were not: they share models, data and one seed. A Pareto tail fitted to the "
            f"largest ratio of each gives {tail['fitted']:.2%}."
            for name, tail in tails.items()
        ),
    ]


def cells(judged: dict) -> list[str]:
    return ["same" if judged["same"] else "**different**", number(judged["largest_ratio"], 2), str(judged["untrusted"])]
