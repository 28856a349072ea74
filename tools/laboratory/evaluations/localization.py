"""The second run: every module given the reference's values, with each bug and without it."""

import shutil

from sweeps.configurations import Configuration
from sweeps.runs import inject, localize

from .bench import Bench
from .bugs import chosen
from .corpus import Case
from .markdown import table, yes

TITLE = "Localisation"


def measure(bench: Bench) -> list[dict]:
    cases = chosen(bench)[:: 3 if bench.quick else 1]
    bench.prepare((case.configuration.model, case.configuration.dtype) for case in cases)
    return bench.map("localization", lambda case: row_of(bench, case), cases, lambda case: case.bug)


def row_of(bench: Bench, case: Case) -> dict:
    run = bench.run(case.configuration, "--bug", case.bug)
    report = localize(run.home, run.reference, run.reference / "tolerance.yaml")
    roots = [root for root in report["roots"] if root["standing"]]
    row = {
        "number": case.number,
        "bug": case.bug,
        "wrong_before": report["counts"]["fail"] + report["counts"]["missing"],
        "wrong_after": report["wrong_in_second_run"],
        "roots": [f"{root['standing']}: {root['name']} {root['kind']}" for root in roots],
        "confirmed": any(
            root["standing"] == "confirmed" and (root["name"], root["kind"]) == (case.first.name, case.first.kind)
            for root in roots
        ),
        "twin": twin_of(bench, case.twin),
    }
    shutil.rmtree(run.home)
    return row


def twin_of(bench: Bench, configuration: Configuration) -> dict:
    """The correct run, its modules given the reference's values: the same?"""
    run = bench.run(configuration)
    report = inject(configuration, run.home, run.reference, run.reference / "tolerance.yaml")
    ratios = [finding["ratio"] or 0 for finding in report["findings"] if finding["verdict"] == "fail"]
    shutil.rmtree(run.home)
    return {"verdict": report["verdict"], "compared": report["counts"]["compared"], "failed": len(ratios)}


def summary(rows: list[dict]) -> tuple[int, int]:
    """How many first wrong tensors were confirmed, and how many twins are the same."""
    return sum(row["confirmed"] for row in rows), sum(row["twin"]["verdict"] == "same" for row in rows)


def render(rows: list[dict]) -> list[str]:
    second = [row for row in rows if row["wrong_after"] is not None]
    confirmed, same = summary(rows)
    lines = [
        "`ttrace localize` after the check of each bug: the candidate once more, every module given the inputs and "
        "output gradients that the reference recorded. What is wrong then is wrong by itself. The twin is the correct "
        "program, treated alike, checked with the same tolerances.",
        "",
        f"There was a second run for {len(second)} of {len(rows)} bugs (there is none where all that differs is "
        f"missing, or the optimizer's step); it confirms the first wrong tensor of {confirmed}. {same} of {len(rows)} "
        "twins are the same.",
        "",
    ]
    return lines + table(
        ["#", "bug", "wrong tensors", "by themselves", "first one confirmed", "roots", "twin"],
        [
            [
                row["number"],
                row["bug"],
                row["wrong_before"],
                "-" if row["wrong_after"] is None else row["wrong_after"],
                "-" if row["wrong_after"] is None else yes(row["confirmed"]),
                "<br>".join(row["roots"][:3]) or "-",
                row["twin"]["verdict"],
            ]
            for row in rows
        ],
    )
