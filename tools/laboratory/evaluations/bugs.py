"""Detection and localisation: every bug of the corpus is found, and first at the tensor where it is made."""

import math

from .bench import Bench
from .corpus import CASES, Case
from .detection import detection_row
from .markdown import number, table, yes

TITLE = "Bugs"


def chosen(bench: Bench) -> list[Case]:
    return bench.chosen(CASES, lambda case: case.bug)


def measure(bench: Bench) -> list[dict]:
    cases = chosen(bench)
    bench.prepare((case.configuration.model, case.configuration.dtype) for case in cases)

    def row_of(case: Case) -> dict:
        row = detection_row(case, bench.references, bench.directory)
        loss = row["loss_relative_difference"]
        # JSON has no NaN.
        finite = loss if loss is not None and math.isfinite(loss) else None
        return {**row, "configuration": case.configuration.name, "loss_relative_difference": finite}

    return bench.map("bug", row_of, cases, lambda case: case.bug)


def summary(rows: list[dict]) -> dict:
    return {
        "bugs": len(rows),
        "detected": sum(row["found"] is not None for row in rows),
        "first_tensor_right": sum(row["right"] for row in rows),
    }


def loss_of(row: dict) -> str:
    difference = row["loss_relative_difference"]
    return "not finite" if difference is None else number(difference, 2)


def render(rows: list[dict]) -> list[str]:
    total = summary(rows)
    replicas, coverage = (sum(row[check] for row in rows) for check in ("replica_check", "coverage_check"))
    lines = [
        "The silent bugs of TTrace's Table 1, reproduced in tinygpt where each was made, one iteration (or as many as "
        "the bug needs) against the run of one process.",
        "",
        f"{total['detected']} of {total['bugs']} detected; the first wrong tensor is the right one for "
        f"{total['first_tensor_right']} of {total['bugs']}. Without any value of the reference, copies that disagree "
        f"would have shown {replicas} of them, and tensors that are missing or do not fit {coverage}.",
        "",
        "*error / allowed* is that of the first wrong tensor (`-`: not a matter of size). *loss* is the relative "
        "difference of the step's loss from the correct one's, which is what a user would have seen. *without a "
        "reference*: what `ttrace abft` finds in the wrong run alone.",
        "",
    ]
    lines += table(
        [
            "#",
            "bug",
            "configuration",
            "first wrong tensor",
            "right",
            "error / allowed",
            "copies disagree",
            "missing",
            "without a reference",
            "loss",
        ],
        [
            [
                row["number"],
                row["bug"],
                row["configuration"],
                f"`{row['found']}`" if row["found"] else "**not found**",
                yes(row["right"]),
                number(row["ratio"]),
                yes(row["replica_check"]),
                yes(row["coverage_check"]),
                f"`{row['self_check']}`" if row["self_check"] else "",
                loss_of(row),
            ]
            for row in rows
        ],
    )
    words = [row["diagnosis"] for row in rows]
    right, none = sum(row["diagnosis"] == row["mechanism"] for row in rows), words.count(None)
    return [
        *lines,
        "",
        "Two of the bugs leave memory as it was: FP8 weights that were never written (8) are zeros here, as fresh "
        "memory mostly is, where TransformerEngine's were whatever was there; and the buffer of a skipped step (9) "
        "keeps what overflowed. Neither is marked in any way. Diagnoses of bugs 5, 7, 8, 9 and 13 were written after "
        "these bugs had none, or a wrong one; how true diagnoses are of what nobody had seen is counted below, over "
        "damages.",
        "",
        f"What the report says the first error looks like: right for {right} of {len(rows)}, no diagnosis for {none}, "
        f"wrong for {len(rows) - right - none}.",
        "",
        *table(
            ["#", "bug", "diagnosis", "sentence"],
            [
                [row["number"], row["bug"], row["diagnosis"] or f"none ({row['mechanism']})", row["sentence"]]
                for row in rows
            ],
        ),
    ]
