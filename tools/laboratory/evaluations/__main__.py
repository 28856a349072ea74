"""How well ttrace tells wrong programs from correct ones: measures, and writes the evidence page."""

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

from freshness import commit
from sweeps.runs import RunError

from . import (
    bugs,
    damages,
    false_alarms,
    framework_mutants,
    localization,
    mutants,
    page,
    sensitivity,
    sketches,
    unknown_steps,
)
from .bench import Bench
from .page import SECTIONS


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/evaluate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures how well ttrace tells wrong programs from correct ones, on real processes:\n"
        + "".join(f"  {name:19}{module.__doc__.strip().splitlines()[0]}\n" for name, module in SECTIONS.items()),
        epilog="What is measured whole is kept in build/evaluations/results.json, from which RESULTS.md and figures/\n"
        "beside it are made, and the sections of the page in tools/laboratory/evaluations. --quick and --case leave\n"
        "all of it as it is.\n\n"
        "Exit code: 0 when every bug was found, first at the right tensor, and no correct program was called\n"
        "wrong; 1 when not; 2 when something could not be run.\n\n"
        "Examples:\n"
        "  tools/evaluate                                  everything, about an hour on 2 cores\n"
        "  tools/evaluate --quick --json evidence.json     part of everything, within 10 minutes\n"
        "  tools/evaluate --only rules --only sensitivity  measures these again, and writes the page anew\n"
        "  tools/evaluate --only bugs --case embedding     what ttrace says about one bug\n"
        "  tools/evaluate --render                         writes the page from results.json",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="part of the sweep, shallow models, short training, no frameworks")
    add("--only", metavar="SECTION", action="append", choices=SECTIONS, help="measure only this; may be repeated")
    add("--case", metavar="TEXT", default="", help="only bugs, configurations and mutants with TEXT in their names")
    add("--json", metavar="FILE", type=Path, help="write what was measured there")
    add("--render", action="store_true", help="measure nothing, write the page anew")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    if options.render:
        page.store(page.load(), page.load())
        return 0
    measured: dict[str, dict] = {}
    publish = not options.quick and not options.case
    with tempfile.TemporaryDirectory(prefix="ttrace-evaluate-") as directory:
        bench = Bench(Path(directory), options.quick, options.case)
        for name in chosen(options, publish):
            try:
                measured[name] = measure(name, bench)
            except Exception as error:  # whatever it is, it is no verdict on ttrace
                if not isinstance(error, RunError):
                    traceback.print_exc()
                print(f"evaluate: error: {name}: {error}", file=sys.stderr)
                return 2
            if publish:
                page.store({**page.load(), name: measured[name]}, [name])
    data = {name: section["data"] for name, section in measured.items()}
    if options.json:
        options.json.write_text(json.dumps(evidence(data), indent=1) + "\n")
    return conclude(data)


def chosen(options: argparse.Namespace, publish: bool) -> list[str]:
    """The sections to measure. The page shows rules beside the correct configurations, so that these come first."""
    names = options.only or sections(options.quick)
    is_alone = publish and "rules" in names and "false-alarms" not in {*names, *page.load()}
    return ["false-alarms", *names] if is_alone else names


def sections(quick: bool) -> list[str]:
    """What is measured where nothing else is asked for."""
    return [name for name in SECTIONS if not quick or SECTIONS[name] not in (framework_mutants, sketches)]


def measure(name: str, bench: Bench) -> dict:
    started = time.monotonic()
    data = SECTIONS[name].measure(bench)
    seconds = round(time.monotonic() - started)
    print(f"evaluate: {name}: {seconds} s", file=sys.stderr, flush=True)
    return {"data": data, "seconds": seconds, "machine": page.machine(), "commit": commit()}


def evidence(data: dict[str, dict]) -> dict:
    """What --json writes. What was not measured is null."""
    names = ["bugs", "detected", "first_tensor_right", "configurations", "false_alarms"]
    names += [*damages.TOTALS, "mutants", "mutant_kinds", "silent_passes", "other_verdicts", "scale_seen"]
    names += sketches.TOTALS
    totals = dict.fromkeys(names)
    if "bugs" in data:
        totals.update(bugs.summary(data["bugs"]))
    if "false-alarms" in data:
        totals.update(false_alarms.summary(data["false-alarms"]))
    if "mutants" in data:
        totals.update(mutants.summary(data["mutants"]))
    if "sensitivity" in data:
        totals.update(sensitivity.summary(data["sensitivity"]))
    if "sketches" in data:
        totals.update(sketches.summary(data["sketches"]))
    if "damages" in data:
        totals.update(damages.summary(data["damages"]))
    renamed = {
        "bugs": "bug_rows",
        "damages": "damage_rows",
        "false-alarms": "configuration_rows",
        "mutants": "mutant_rows",
    }
    return {**totals, **{renamed.get(name, name.replace("-", "_")): rows for name, rows in data.items()}}


def conclude(data: dict[str, dict]) -> int:
    totals = evidence(data)
    good = True
    if "bugs" in data:
        print(
            f"{totals['detected']} of {totals['bugs']} bugs detected, "
            f"first tensor right {totals['first_tensor_right']} of {totals['bugs']}"
        )
        good &= totals["bugs"] == totals["detected"] == totals["first_tensor_right"]
    if "false-alarms" in data:
        print(f"{totals['false_alarms']} of {totals['configurations']} correct configurations called wrong")
        good &= totals["false_alarms"] == 0
    for name in ("mutants", "framework-mutants"):
        if name not in data:
            continue
        counts = mutants.summary(data[name])
        print(
            f"{counts['silent_passes']} of {counts['mutants']} {name.replace('-', ' ')} of {counts['mutant_kinds']} "
            f"kinds pass in silence, {counts['other_verdicts']} get another wrong verdict"
        )
        good &= counts["silent_passes"] == 0
    if "unknown-steps" in data:
        correct, alarms, faults, named = unknown_steps.summary(data["unknown-steps"])
        print(
            f"steps of unknown optimizers: {alarms} of {correct} correct runs called wrong, {named} of {faults} faults "
            "named as the step's"
        )
        good &= alarms == 0
    if "sketches" in data:
        print(
            f"by sketches: {totals['sketched_detected']} of {totals['sketched_bugs']} wrong programs detected, first "
            f"tensor right {totals['sketched_first_right']}; {totals['sketched_false_alarms']} of "
            f"{totals['sketched_correct']} correct ones called wrong"
        )
        good &= totals["sketched_bugs"] == totals["sketched_first_right"] and totals["sketched_false_alarms"] == 0
    if "damages" in data:
        print(
            f"{totals['damages_seen']} of {totals['damages']} damages seen, diagnosis right "
            f"{totals['diagnoses_right']}, none {totals['diagnoses_none']}, wrong {totals['diagnoses_wrong']}"
        )
        good &= totals["diagnoses_wrong"] <= 0.02 * totals["damages_seen"]
    if "localization" in data:
        confirmed, twins = localization.summary(data["localization"])
        print(f"second run: {confirmed} of {len(data['localization'])} first tensors confirmed, {twins} twins the same")
        good &= confirmed == twins == len(data["localization"])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
