"""False alarms over drawn programs: correct parallel runs of models whose depth, width, data, dtype and optimizer are
drawn at random, each checked against its own reference.

`tools/laboratory/draw [DIRECTORY] [--count N] [--judge] [--discard]` collects what DIRECTORY lacks of the first N draws
and checks all that it holds. All of them make the page DRAWN.md beside this file; of fewer it is printed. It goes on
where it was stopped, and where traces stay, another version of the rules judges the very same runs."""

import argparse
import csv
import hashlib
import json
import random
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from freshness import commit, sentence
from sweeps import warm
from sweeps.configurations import ANNOTATIONS, ROOT, Configuration, Model
from sweeps.runs import TTRACE, RunError, check, collect, collect_reference, estimate, run

from . import page
from .markdown import number, table
from .peers import BUILD
from .tails import clopper_pearson

PAGE = page.HERE / "DRAWN.md"
COMMAND = "tools/laboratory/draw"
COUNT = 50
STATISTICS = ("rel_err", "scale", "row", "element", "coherence")
A_MODEL = 8  # configurations of one reference
_WAYS = [
    (dict(tp=2), ""),
    (dict(tp=2), "--sp"),
    (dict(tp=4), "--sp"),
    (dict(cp=2), ""),
    (dict(cp=2), "--cp-layout striped"),
    (dict(cp=4), "--cp-comm allgather"),
    (dict(dp=2), "--zero 1"),
    (dict(dp=4), ""),
    (dict(pp=2), ""),
    (dict(tp=2, dp=2), "--sp"),
    (dict(tp=2, pp=2), "--sp"),
    (dict(tp=2, cp=2), "--sp"),
    (dict(cp=2, dp=2), ""),
    (dict(cp=2, pp=2), ""),
    (dict(dp=2, pp=2), "--zero 1"),
]
_EXPERT_WAYS = [
    (dict(dp=2, ep=2), ""),
    (dict(dp=4, ep=2), ""),
    (dict(tp=2, dp=2, ep=2, etp=2), "--sp"),
    (dict(dp=2, pp=2, ep=2), ""),
    (dict(tp=2), "--sp"),
]


@dataclass
class Draw:
    number: int
    model: Model
    dtype: str
    configurations: list[Configuration]


def draw(number_: int) -> Draw:
    chance = random.Random(f"correct {number_}")
    kind = chance.choice(["gpt"] * 5 + ["llama"] * 3 + ["moe"])
    dtype = chance.choice(["bf16", "bf16", "fp32"])
    arguments = (
        f"--seed {chance.randrange(10**6)} --layers {chance.choice([2, 4, 6, 8, 12])} "
        f"--hidden {chance.choice([64, 96, 128, 192, 256])} --seq {chance.choice([32, 64])} "
        f"--micro-batch-size {chance.choice([2, 4])} --micro-batches 4 "
        f"--optimizer {chance.choice(['adam', 'sgd'])}"
    )
    name = f"{kind}-{number_}"
    if kind == "llama":
        annotations = ROOT / "tools" / "tinygpt" / "llama.yaml"
        groups = {"query_heads": 4, "kv_heads": 4 // chance.choice([1, 2])}
        heads = f"--arch llama --heads {groups['query_heads']} --kv-heads {groups['kv_heads']}"
        model = Model(name, f"{heads} {arguments}", annotations, groups)
    elif kind == "moe":
        model = Model(name, f"--experts 4 --topk 2 {arguments}", ANNOTATIONS / "megatron_moe.yaml")
    else:
        model = Model(name, arguments)
    possible = _EXPERT_WAYS if kind == "moe" else _WAYS
    ways = chance.sample(possible, min(A_MODEL, len(possible)))
    if "--kv-heads 2" in model.arguments:
        ways = [(sizes, flags) for sizes, flags in ways if sizes.get("tp", 1) <= 2]
    return Draw(number_, model, dtype, [Configuration(model, dtype, sizes, flags) for sizes, flags in ways])


def home_of(directory: Path, drawn: Draw) -> Path:
    return directory / drawn.model.name


def collect_draw(directory: Path, drawn: Draw) -> Path:
    """Leaves the reference in `home_of`, its perturbed runs in `runs` there, and each candidate in a directory of its
    own. What is there whole already stays."""
    home = home_of(directory, drawn)
    if not (home / "tolerance.yaml").exists():
        shutil.rmtree(home, ignore_errors=True)
        collect_reference(home, drawn.model, drawn.dtype)
        estimate(home, drawn.model, drawn.dtype, home / "tolerance.yaml", keep_runs=True)
    for i, configuration in enumerate(drawn.configurations):
        candidate = home / f"candidate-{i}"
        if (candidate / "output.txt").exists():
            continue
        shutil.rmtree(candidate, ignore_errors=True)
        candidate.mkdir()
        collect(configuration, candidate)
    return home


def judge_draw(directory: Path, drawn: Draw) -> list[dict]:
    """A row for each configuration that was collected, judged with tolerances that are estimated anew."""
    home = home_of(directory, drawn)
    perturbed = [str(path) for path in sorted(home.glob("runs/perturbed-?"))]
    rerun, annotations = str(home / "runs" / "rerun"), str(home / "annotations.yaml")
    command = [TTRACE, "estimate-tolerance", "--reference", str(home / "trace"), "--perturbed", *perturbed]
    run([*command, "--rerun", rerun, "-a", annotations, "-o", str(home / "tolerance.yaml")])
    rows = []
    for i, configuration in enumerate(drawn.configurations):
        candidate = home / f"candidate-{i}"
        if (candidate / "output.txt").exists():
            rows.append(row_of(configuration, candidate, check(candidate, home, home / "tolerance.yaml")))
    return rows


def row_of(configuration: Configuration, candidate: Path, report: dict) -> dict:
    """`outcome` is a digest of what was measured, None where the candidate equals the reference in every bit.
    `largest` has, of each statistic, the largest ratio of measured to allowed, with its tensor."""
    with open(candidate / "measured.csv") as file:
        measured = list(csv.DictReader(file))
    differs = any(float(row["rel_err"] or 0) > 0 for row in measured)
    digest = hashlib.sha256("\n".join(row["rel_err"] for row in measured).encode()).hexdigest()[:16]
    return {
        "commit": commit(),
        "model": configuration.model.name,
        "arguments": configuration.model.arguments,
        "dtype": configuration.dtype,
        "way": " ".join(configuration.name.split()[2:]),
        "same": report["verdict"] == "same",
        "outcome": digest if differs else None,
        "tests": report["tests"],
        "untrusted": report["counts"]["untrusted"],
        "largest": {statistic: largest_of(measured, statistic) for statistic in STATISTICS},
        "alarms": [finding["message"] for finding in report["findings"] if finding["verdict"] != "untrusted"],
    }


def largest_of(measured: list[dict], statistic: str) -> tuple[float, str] | None:
    allowed = "allowed" if statistic == "rel_err" else f"{statistic}_allowed"
    ratios = [
        (abs(float(row[statistic])) / float(row[allowed]), f"{row['name']} {row['kind']}")
        for row in measured
        if row["verdict"] in ("pass", "fail") and row.get(statistic) and row.get(allowed) and float(row[allowed]) > 0
    ]
    return max(ratios, default=None)


def render(rows: list[dict]) -> list[str]:
    alarms = [row for row in rows if not row["same"]]
    outcomes = {row["outcome"] for row in rows} - {None}
    equal = sum(row["outcome"] is None for row in rows)
    models = {row["model"] for row in rows}
    wrong = {row["outcome"] for row in alarms}
    seconds, commits = sum(row["seconds"] for row in rows), sorted({row["commit"] for row in rows})
    lines = [
        "# Correct programs, drawn at random",
        "",
        sentence(f"{COMMAND} --discard", seconds, commits, page.machine()),
        "Depth, width, data, seed, dtype, optimizer and the ways to run in parallel are drawn; each candidate is a run "
        "of real processes over gloo, checked against its own model's reference.",
        "",
        f"{len(rows)} configurations of {len(models)} models, with {len(outcomes)} distinct outcomes (runs of one "
        f"model that measure the same in every tensor count once, and {equal} that equal the reference in every bit "
        f"not at all): **{len(alarms)} false alarms**. With 95 % confidence fewer than "
        f"{clopper_pearson(len(wrong), len(outcomes)):.2%} of such programs have one, and of models fewer than "
        f"{clopper_pearson(len({row['model'] for row in alarms}), len(models)):.2%}.",
        "",
        "The largest ratio of measured to allowed of any tensor, of each statistic: median and largest over "
        "configurations.",
        "",
    ]
    cells = []
    for dtype in sorted({row["dtype"] for row in rows}):
        of_dtype = [row for row in rows if row["dtype"] == dtype and row["outcome"]]
        for statistic in STATISTICS:
            found = sorted(tuple(row["largest"][statistic]) for row in of_dtype if row["largest"][statistic])
            if found:
                middle, (largest, tensor) = found[len(found) // 2][0], found[-1]
                cells.append([dtype, statistic, len(found), number(middle, 2), number(largest, 2), tensor])
    lines += table(["dtype", "statistic", "configurations", "median", "largest", "of"], cells)
    lines += ["", "Configurations:", ""]
    lines += table(
        ["model", "arguments", "dtype", "runs", "tests each"],
        [
            [
                name,
                of_model[0]["arguments"],
                of_model[0]["dtype"],
                "; ".join(row["way"] + ("" if row["same"] else " **different**") for row in of_model),
                of_model[0]["tests"],
            ]
            for name in sorted(models, key=lambda name: int(name.split("-")[-1]))
            if (of_model := [row for row in rows if row["model"] == name])
        ],
    )
    messages = [f"- {row['model']} {row['way']}: {row['alarms'][0]}" for row in alarms if row["alarms"]]
    return lines + (["", "Called wrong although correct:", "", *messages] if messages else [])


def measure(options: argparse.Namespace, drawn: Draw) -> list[dict]:
    """The rows of a model, which are kept beside its traces: those of before where the traces are gone."""
    home, kept = home_of(options.directory, drawn), options.directory / f"{drawn.model.name}.json"
    if kept.exists() and not home.exists():
        return json.loads(kept.read_text())
    started = time.monotonic()
    if not options.judge:
        collect_draw(options.directory, drawn)
    if not (home / "tolerance.yaml").exists():
        return []
    rows = judge_draw(options.directory, drawn)
    rows = [row | {"seconds": (time.monotonic() - started) / len(rows)} for row in rows]
    kept.write_text(json.dumps(rows, indent=1) + "\n")
    if options.discard:
        shutil.rmtree(home)
    return rows


def attempt(options: argparse.Namespace, drawn: Draw) -> list[dict] | None:
    """Measures; None where something could not be run, which is said."""
    try:
        rows = measure(options, drawn)
    except RunError as error:
        print(f"{drawn.model.name}: {error}", file=sys.stderr, flush=True)
        return None
    print(f"{drawn.model.name}: {drawn.model.arguments} {drawn.dtype}", file=sys.stderr, flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=" ".join(__doc__.split("\n\n")[0].split()))
    kept = "keeps the traces, about 1 GB a model [build/drawn/COMMIT]"
    parser.add_argument("directory", type=Path, nargs="?", default=BUILD / "drawn" / commit()[:10], help=kept)
    models = f"models to draw, with up to {A_MODEL} runs each [{COUNT}]"
    parser.add_argument("--count", type=int, default=COUNT, help=models)
    parser.add_argument("--judge", action="store_true", help="collect nothing")
    parser.add_argument("--discard", action="store_true", help="keep a model's figures, and not its traces")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    with warm.server():
        measured = [attempt(options, draw(i)) for i in range(options.count)]
    rows = [row for one in measured if one for row in one]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.count < COUNT:
        print("\n".join(render(rows)))
    else:
        PAGE.write_text("\n".join(render(rows)) + "\n")
    return 2 if None in measured else int(any(not row["same"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
