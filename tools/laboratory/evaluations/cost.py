"""Cost: from nothing to a verdict on one bug, against training until the loss shows it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from sweeps import launch
from sweeps.configurations import Configuration
from sweeps.runs import References, RunError, check, collect, program_of

from .bench import Bench
from .corpus import CASES
from .markdown import number, table

TITLE = "Cost"

TABLE_2 = (
    "TTrace's Table 2 is not reproduced: it has the minutes that tracing a pipelined reference takes for models which "
    "no single device holds (Llama 3 8B, 70B, 405B: 1.8, 7.2, 17.1; DeepSeek V3 16B, 236B, 671B: 2.8, 15.2, 22.7), and "
    "none of them fits on this machine. That a pipeline may be the reference is shown by the sweep (`gpt-pipelined`)."
)
SHOWS = 0.03  # relative difference of losses: TTrace, Figure 1 and section 6.4
BUG = 1  # as there
_STEP = re.compile(r"^step (\d+) loss (\S+) ", re.MULTILINE)


@dataclass
class Cost:
    bug: str
    configuration: str
    reference_seconds: float  # with its tolerances, which serve every later check too
    candidate_seconds: float
    check_seconds: float
    verdict: str
    steps: int  # that were trained
    shown_at: int | None  # the first step whose loss differs by SHOWS
    largest_difference: float  # of losses, over the steps
    training_seconds: float  # of both programs, as far as needed to see it


def measure(bench: Bench) -> dict:
    case = next(case for case in CASES if case.number == BUG)
    configuration = case.configuration
    directory = Path(tempfile.mkdtemp(dir=bench.directory))
    home = directory / "candidate"
    home.mkdir()
    references = References(directory)  # a new one: everything counts
    say("from nothing to a verdict")
    reference, reference_seconds = timed(lambda: references.of(configuration.model, configuration.dtype))
    _, candidate_seconds = timed(lambda: collect(configuration, home, "--bug", case.bug))
    report, check_seconds = timed(lambda: check(home, reference, reference / "tolerance.yaml"))
    shutil.rmtree(directory)

    steps = 40 if bench.quick else 400
    say(f"{steps} steps, wrong and correct")
    correct, correct_seconds = timed(lambda: losses(configuration, steps))
    wrong, wrong_seconds = timed(lambda: losses(configuration, steps, "--bug", case.bug))
    differences = [abs(b - a) / a for a, b in zip(correct, wrong, strict=True)]
    shown_at = next((step for step, difference in enumerate(differences) if difference >= SHOWS), None)
    share = 1 if shown_at is None else (shown_at + 1) / steps
    return asdict(
        Cost(
            case.bug,
            configuration.name,
            reference_seconds,
            candidate_seconds,
            check_seconds,
            report["verdict"],
            steps,
            shown_at,
            max(differences),
            share * (correct_seconds + wrong_seconds),
        )
    )


def timed(work: Callable):
    started = time.monotonic()
    result = work()
    return result, time.monotonic() - started


def say(what: str) -> None:
    print(f"evaluate: cost: {what}", file=sys.stderr, flush=True)


def losses(configuration: Configuration, steps: int, *arguments: str) -> list[float]:
    command = [
        sys.executable,
        launch.__file__,
        str(configuration.world_size),
        program_of(configuration.model),
        *configuration.arguments,
        "--steps",
        str(steps),
        *arguments,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    found = [float(loss) for _, loss in _STEP.findall(result.stdout)]
    if result.returncode != 0 or len(found) != steps:
        raise RunError(
            f"{' '.join(command)}\nexit code {result.returncode}, {len(found)} losses\n{result.stderr[-4000:]}"
        )
    return found


def render(data: dict) -> list[str]:
    cost = Cost(**data)
    whole = cost.reference_seconds + cost.candidate_seconds + cost.check_seconds
    if cost.shown_at is None:
        seen = f"not within {cost.steps} steps (at most {cost.largest_difference:.2%})"
    else:
        seen = f"step {cost.shown_at}"
    lines = [
        f"Bug {BUG}, {cost.bug}, {cost.configuration}, wall-clock seconds on the machine that made this page. The "
        "reference and its tolerances (five runs) are made once, and serve every later check.",
        "",
        TABLE_2,
        "",
    ]
    return (
        lines
        + table(
            ["from nothing to a verdict", "seconds"],
            [
                ["reference and its tolerances", number(cost.reference_seconds)],
                ["candidate, collected", number(cost.candidate_seconds)],
                ["check", number(cost.check_seconds)],
                [f"**verdict: {cost.verdict}**", f"**{number(whole)}**"],
            ],
        )
        + [""]
        + table(
            ["training instead", ""],
            [
                [f"losses of wrong and correct program differ by {SHOWS:.0%}", seen],
                ["seconds of training, both programs, until then", number(cost.training_seconds)],
            ],
        )
    )
