"""Sketches: bugs and correct programs recorded with `collect --sketch`; a real framework beside whole traces."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from sweeps import warm
from sweeps.configurations import Configuration, Model
from sweeps.runs import References, check, collect

from . import sketched_megatron
from .bench import Bench
from .bugs import chosen
from .corpus import CASES, SKIPPED_STEP, Case
from .cost import timed
from .markdown import number, table, yes
from .sketched_runs import KINDS, of_report, of_trace

TITLE = "Sketches"

# Parts of tensors that ranks hold have 65,536 elements and more, and borders at multiples of 128.
WIDE = "--hidden 768 --seq 512 --vocab 1024 --micro-batches 2"
# A CPU takes minutes for products of fp16 matrices of that size. The loss scale of this width is the one of which the
# first step overflows, and the second, with half of it, does not.
LESS_WIDE = "--hidden 384 --seq 256 --vocab 512 --micro-batches 2 --layers 2 --loss-scale 2048"
TOTALS = [f"sketched_{what}" for what in ("bugs", "detected", "first_right", "correct", "false_alarms")]


def options_of(model: Model) -> list[str]:
    """Of `ttrace collect`. Which rows an expert has, the router decides, differently in each perturbed run."""
    return [*KINDS["sketched"], *(["--whole", "layers.*.mlp.experts"] if "--experts" in model.arguments else [])]


def wide(case: Case) -> Case:
    """The case in a model whose large tensors are sketched."""

    def widened(configuration: Configuration) -> Configuration:
        model = configuration.model
        sizes = LESS_WIDE if model is SKIPPED_STEP else WIDE
        model = replace(model, name=f"{model.name}-wide", arguments=f"{model.arguments} {sizes}")
        return replace(configuration, model=model)

    return replace(case, configuration=widened(case.configuration), twin=widened(case.twin))


def measure(bench: Bench) -> dict:
    with warm.server():
        rows = _measure_bugs(bench)
    return {"bugs": rows, "megatron": sketched_megatron.measure(bench)}


def _measure_bugs(bench: Bench) -> list[dict]:
    cases = [wide(case) for case in chosen(bench)]
    home = bench.directory / "sketched"
    home.mkdir()
    models = {(case.configuration.model, case.configuration.dtype): None for case in cases}
    references = {model: References(home, options_of(model)) for model, _ in models}
    bench.map(
        "reference", lambda pair: references[pair[0]].of(*pair), list(models), lambda pair: f"{pair[0].name} {pair[1]}"
    )
    return bench.map("bug", lambda case: row_of(bench, case, references), cases, lambda case: case.bug)


def row_of(bench: Bench, case: Case, references: dict[Model, References]) -> dict:
    model = case.configuration.model
    reference = references[model].of(model, case.configuration.dtype)
    wrong = seen(bench.directory, case.configuration, reference, "--bug", case.bug)
    return {
        "number": case.number,
        "bug": case.bug,
        "configuration": case.configuration.name,
        "wrong": {**wrong, "right": wrong["found"] == str(case.first)},
        "twin": seen(bench.directory, case.twin, reference),
    }


def seen(directory: Path, configuration: Configuration, reference: Path, *arguments: str) -> dict:
    """Collects and checks one run."""
    home = Path(tempfile.mkdtemp(dir=directory))
    _, collect_seconds = timed(
        lambda: collect(configuration, home, *arguments, options=options_of(configuration.model))
    )
    report, check_seconds = timed(lambda: check(home, reference, reference / "tolerance.yaml"))
    result = {
        **of_report(report, (home / "measured.csv").read_text()),
        **of_trace(home / "trace"),
        "collect_seconds": collect_seconds,
        "check_seconds": check_seconds,
    }
    shutil.rmtree(home)
    return result


def summary(data: dict) -> dict:
    """Counts of what was recorded with --sketch, of tinygpt and of Megatron-core together."""
    framework = data["megatron"]["sketched"]["candidates"]
    wrong = [row["wrong"] for row in data["bugs"]] + [run for run in framework if run["is_wrong"]]
    correct = [row["twin"] for row in data["bugs"]] + [run for run in framework if not run["is_wrong"]]
    detected = sum(run["verdict"] == "different" for run in wrong)
    right = sum(run["right"] for run in wrong)
    alarms = sum(run["verdict"] != "same" for run in correct)
    return dict(zip(TOTALS, (len(wrong), detected, right, len(correct), alarms), strict=True))


def render(data: dict) -> list[str]:
    counts = summary(data)
    runs = [run for row in data["bugs"] for run in (row["wrong"], row["twin"])]
    elements, small = (sum(run[what] for run in runs) for what in ("element_bytes", "bytes"))
    missing = sorted({case.bug for case in CASES} - {row["bug"] for row in data["bugs"]})
    return [
        "Reference, the perturbed runs of its tolerances and candidates are collected with `--sketch`. A sketch is "
        "recorded of a tensor of 65,536 elements or more, which the corpus above has hardly any of: here tinygpt has "
        f"`{WIDE}` (in fp16 `{LESS_WIDE}`), and Megatron-core `{sketched_megatron.SIZES}`.",
        "",
        f"{counts['sketched_detected']} of {counts['sketched_bugs']} wrong programs are *different*, first at the "
        f"right tensor {counts['sketched_first_right']}; {counts['sketched_false_alarms']} of "
        f"{counts['sketched_correct']} correct ones are not *same*.",
        "",
        "*of sketches*: how many of the comparisons of the wrong run were of sketches. *by a sketch*: whether the "
        "first wrong tensor was; where not, it is small (a norm's gradient, a scalar), and was recorded whole.",
        "",
        "### The bugs of the paper",
        "",
        *table(
            ["#", "bug", "configuration", "first wrong tensor", "right", "by a sketch", "error / allowed"]
            + ["of sketches", "not seen", "MB", "MB of elements", "collect, s", "check, s", "twin"],
            [_bug_row(row) for row in data["bugs"]],
        ),
        "",
        f"The traces of these {len(runs)} runs take {small / 1e6:,.0f} MB, and the elements that they stand for "
        f"{elements / 1e6:,.0f} MB, {elements / small:.0f} times more (a third less where tensors share their bytes). "
        "What is left is what is not sketched: vectors, parts of flattened parameters, tensors whose last dimension is "
        "256 or less; and the index." + (f" **Not measured: {', '.join(missing)}.**" if missing else ""),
        "",
        "### Megatron-core, beside whole traces",
        "",
        *_megatron(data["megatron"]),
    ]


def _bug_row(row: dict) -> list:
    wrong = row["wrong"]
    return [
        row["number"],
        row["bug"],
        row["configuration"].replace("-wide", ""),
        f"`{wrong['found']}`" if wrong["found"] else "**not found**",
        yes(wrong["right"]),
        yes(wrong["found_by_sketch"]),
        number(wrong["ratio"]),
        f"{wrong['sketched']} of {wrong['compared']}",
        wrong["not_seen"],
        f"{wrong['bytes'] / 1e6:.1f}",
        f"{wrong['element_bytes'] / 1e6:,.0f}",
        number(wrong["collect_seconds"], 2),
        number(wrong["check_seconds"], 2),
        row["twin"]["verdict"],
    ]


def _megatron(data: dict) -> list[str]:
    candidates = list(zip(*(data[kind]["candidates"] for kind in KINDS), strict=True))
    references = [data[kind]["reference"] for kind in KINDS]
    return [
        "Tolerances measured on the reference as it was recorded. `attention-scale` and `gradient-sum` are "
        "`mistakes.py` in tools/frameworks/megatron.",
        "",
        *table(
            ["candidate", "whole", "sketched", "first wrong tensor, sketched", "right", "by a sketch"]
            + ["error / allowed, whole", "sketched", "of sketches", "not seen"],
            [
                [
                    sketched["name"],
                    whole["verdict"],
                    sketched["verdict"],
                    f"`{sketched['found']}`" if sketched["found"] else "-",
                    yes(sketched["right"]) if sketched["is_wrong"] else "-",
                    yes(sketched["found_by_sketch"]) if sketched["is_wrong"] else "-",
                    number(whole["ratio"]),
                    number(sketched["ratio"]),
                    f"{sketched['sketched']} of {sketched['compared']}",
                    sketched["not_seen"],
                ]
                for whole, sketched in candidates
            ],
        ),
        "",
        "Wall-clock seconds, one run after the other. *recording* is what the collector took of the job.",
        "",
        *table(
            ["", "tensors", "as sketches", "MB, whole", "sketched", "collect, whole", "sketched"]
            + ["recording, whole", "sketched", "check, whole", "sketched"],
            [_cost_row("reference", *references)] + [_cost_row(b["name"], a, b) for a, b in candidates],
        ),
        "",
        "`estimate-tolerance` (perturbed runs, one after the other) took "
        + " and ".join(f"{run['estimate_seconds']:.0f} s {kind}" for kind, run in zip(KINDS, references, strict=True))
        + ".",
    ]


def _cost_row(name: str, whole: dict, sketched: dict) -> list:
    figures = [f"{run['bytes'] / 1e6:.1f}" for run in (whole, sketched)]
    for key in ("collect_seconds", "recording_seconds", "check_seconds"):
        figures += [number(run.get(key)) for run in (whole, sketched)]
    return [name, sketched["tensors"], sketched["sketches"], *figures]
