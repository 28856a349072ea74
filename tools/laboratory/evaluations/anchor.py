"""One run in fp32 as an anchor, beside perturbed runs: what each of them allows, finds and calls wrong, on the bugs of
the corpus, their correct twins, and mutants of a correct run.

Each model has one reference in bf16 (or fp16), with tolerances by perturbed runs and a rerun, and by an anchor; each
candidate is collected once and checked against both.

`tools/laboratory/anchor [--case TEXT]` writes ANCHOR.md beside this file; with --case, of bugs with TEXT in their
names, it prints what it has measured."""

import argparse
import csv
import math
import statistics
import tempfile
import time
from pathlib import Path

from freshness import commit, machine, sentence
from sweeps import warm
from sweeps.configurations import Configuration, Model
from sweeps.runs import TTRACE, References, RunError, check, collect, collect_reference, run

from . import mutants
from .bench import Bench
from .corpus import CASES, Case
from .markdown import number, table

PAGE = Path(__file__).with_name("ANCHOR.md")
WAYS = ("perturbed", "anchor")


class Tolerances:
    """References with both tolerance files, in `directory`; made when first needed."""

    def __init__(self, directory: Path):
        self.directory, self._references = directory, References(directory)

    def of(self, model: Model, dtype: str) -> tuple[Path, dict[str, Path]]:
        """The reference's directory, and the tolerance file of each way."""
        home = self._references.of(model, dtype)
        files = {"perturbed": home / "tolerance.yaml", "anchor": home / "anchor.yaml"}
        if not files["anchor"].exists():
            anchor = home / "anchor"
            collect_reference(anchor, model, "fp32")
            words = ["--reference", home / "trace", "--anchor", anchor / "trace", "-a", home / "annotations.yaml"]
            run([TTRACE, "estimate-tolerance", *map(str, words), "-o", str(files["anchor"])])
        return home, files


def measure(configuration: Configuration, tolerances: Tolerances, *arguments: str) -> dict[str, dict]:
    """By way: the verdict, the first wrong tensor, and by kind and name how many times what is allowed a tensor is off,
    and what that is."""
    reference, files = tolerances.of(configuration.model, configuration.dtype)
    measured = {}
    with tempfile.TemporaryDirectory(dir=tolerances.directory) as home:
        collect(configuration, Path(home), *arguments)
        for way, tolerance in files.items():
            report = check(Path(home), reference, tolerance)
            root = report.get("root_cause") or {}
            with (Path(home) / "measured.csv").open(newline="") as lines:
                rows = [row for row in csv.DictReader(lines) if row["ratio"]]
            measured[way] = {
                "verdict": report["verdict"],
                "first": f"{root['name']} {root['kind']}" if root else "",
                "failed": report["counts"]["fail"],
                "untrusted": report["counts"]["untrusted"],
                "ratios": {(row["kind"], row["name"], row["microbatch"]): float(row["ratio"]) for row in rows},
                "allowed": {
                    (row["kind"], row["name"]): float(row["allowed"]) for row in rows if row["kind"] != "param"
                },
            }
    return measured


def bug_row(case: Case, found: dict[str, dict]) -> list:
    first = f"{case.first.name} {case.first.kind}"
    return [
        case.bug,
        *(one["verdict"] + (" at it" if one["first"] == first else "") for one in found.values()),
        *(one["failed"] for one in found.values()),
        *(number(max((r for key, r in one["ratios"].items() if f"{key[1]} {key[0]}" == first), default=None))
          for one in found.values()),
    ]  # fmt: skip


def twin_row(case: Case, found: dict[str, dict]) -> list:
    allowed = [one["allowed"] for one in found.values()]
    logs = [math.log(allowed[1][key] / allowed[0][key]) for key in allowed[0].keys() & allowed[1].keys()
            if min(allowed[0][key], allowed[1][key]) > 0]  # fmt: skip
    return [
        case.twin.name,
        *(one["verdict"] for one in found.values()),
        *(number(max(one["ratios"].values(), default=None)) for one in found.values()),
        *(one["untrusted"] for one in found.values()),
        " / ".join(number(math.exp(log), 2) for log in deciles(logs)),
    ]


def mutant_rows(tolerances: Tolerances) -> list[list]:
    """By way: how many mutants of a correct run there are, how many are judged as they should be, and which are not."""
    bench, configuration = Bench(tolerances.directory, quick=False, case=""), mutants.BEDS[0]
    reference, files = tolerances.of(configuration.model, configuration.dtype)
    home = tolerances.directory / "mutants"
    home.mkdir()
    collect(configuration, home)
    rows = []
    for way, tolerance in files.items():
        bed = mutants.Bed(mutants.Check(reference / "trace", home / "trace", home / "annotations.yaml", tolerance))
        families = (mutants.values, mutants.on_both_sides, mutants.small_differences_between_copies, mutants.structure)
        made = [mutant for family in (*families, mutants.steps) for mutant in family(bed)]
        judged = mutants.judged(bench, way, bed, made)
        wrong = [
            f"{row['kind']}, {row['where']}: {row['verdict']}" for row in judged if row["verdict"] not in row["right"]
        ]
        rows.append([way, len(judged), len(judged) - len(wrong), "; ".join(wrong) or "-"])
    return rows


def deciles(logs: list[float]) -> list[float]:
    """The first, the fifth and the ninth."""
    return statistics.quantiles(logs, n=10)[::4] if len(logs) > 1 else []


def mutant_lines(mutated: list[list]) -> list[str]:
    lines = ["Mutants: a correct run of two steps, in bf16 on tp2 dp2, with one change each.", ""]
    return [*lines, *table(["tolerances", "mutants", "judged as they should be", "not"], mutated), ""]


def page(bugs: list[list], twins: list[list], mutated: list[list], left_out: list[str], seconds: float) -> str:
    alarms = [sum(row[1 + i] == "different" for row in twins) for i in range(2)]
    found = [sum(row[1 + i].startswith("different") for row in bugs) for i in range(2)]
    at = [sum(row[1 + i].endswith("at it") for row in bugs) for i in range(2)]
    lines = [
        "# One run in fp32 in place of perturbed runs",
        "",
        sentence("tools/laboratory/anchor", seconds, [commit()], machine()),
        "The bugs of the corpus and their correct twins, in bf16 or fp16, with a reference of one process each.",
        "",
        f"Of {len(bugs)} bugs perturbed runs find {found[0]} ({at[0]} at the right tensor), an anchor {found[1]} "
        f"({at[1]}). Of {len(twins)} correct twins perturbed runs call {alarms[0]} different, an anchor {alarms[1]}.",
        "",
        "Bugs: the verdict, how many tensors fail, and how many times what is allowed the tensor is off at which the "
        "bug must be found.",
        "",
        *table(["bug", *WAYS, *(f"failed, {way}" for way in WAYS), *(f"ratio, {way}" for way in WAYS)], bugs),
        "",
        "Correct twins: the verdict, the largest error over what is allowed, how many tensors prove nothing, and what "
        "an anchor allows over what perturbed runs do: the lowest tenth of tensors, the median, the highest tenth.",
        "",
        *table(
            ["twin", *WAYS, *(f"largest, {way}" for way in WAYS), *(f"untrusted, {way}" for way in WAYS), "allowed"],
            twins,
        ),
        "",
        *(mutant_lines(mutated) if mutated else []),
        *(["Not measured: " + "; ".join(left_out) + ".", ""] if left_out else []),
    ]
    return "\n".join(lines)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="tools/laboratory/anchor", description=__doc__, formatter_class=raw)
    parser.add_argument("--case", default="", help="only bugs with this text in their names")
    options = parser.parse_args()
    cases = [case for case in CASES if options.case in case.bug]
    left = {case.bug: case.configuration.dtype for case in sorted(cases, key=lambda one: one.configuration.model.name)}
    started = time.monotonic()
    bugs: list[list] = []
    twins: dict[str, list] = {}
    with tempfile.TemporaryDirectory(prefix="ttrace-anchor-") as directory, warm.server():
        tolerances = Tolerances(Path(directory))
        for bug, dtype in list(left.items()):
            if dtype == "fp8":  # of which tinygpt has no twin in fp32
                continue
            case = next(case for case in cases if case.bug == bug)
            try:
                bugs.append(bug_row(case, measure(case.configuration, tolerances, "--bug", bug)))
                if case.twin.name not in twins:
                    twins[case.twin.name] = twin_row(case, measure(case.twin, tolerances))
            except RunError as error:  # an anchor that does not fit is refused
                left[bug] = f"{dtype}: {str(error).strip().splitlines()[-1]}"
                continue
            del left[bug]
            left_out = [f"{name} ({dtype})" for name, dtype in left.items()]
            text = page(bugs, list(twins.values()), [], left_out, time.monotonic() - started)
            if not options.case:  # what was measured by then stays where the rest is stopped
                PAGE.write_text(text)
        if options.case:
            print(text)
            return
        mutated = mutant_rows(tolerances)
    PAGE.write_text(page(bugs, list(twins.values()), mutated, left_out, time.monotonic() - started))


if __name__ == "__main__":
    main()
