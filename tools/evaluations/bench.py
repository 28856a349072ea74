"""What the sections of an evaluation share: references and their tolerances, and runs two at a time."""

import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Tuple

from sweeps.configurations import Configuration, Model
from sweeps.runs import TTRACE, References, RunError, check, collect, program_of, run

AT_A_TIME = max(1, min(4, (os.cpu_count() or 1)))  # runs; each has a thread a rank


@dataclass
class Run:
    """A candidate that was collected. `home` has `trace`, `annotations.yaml` and `measured.csv`."""

    configuration: Configuration
    home: Path
    reference: Path
    tolerances: Dict[str, Path]  # by estimator

    def report(self, estimator: str) -> dict:
        return check(self.home, self.reference, self.tolerances[estimator])

    def measured(self) -> List[dict]:
        """What the last report measured of every tensor, as text."""
        return read_csv((self.home / "measured.csv").read_text())


class Bench:
    def __init__(self, directory: Path, quick: bool, case: str):
        self.directory = directory
        self.quick = quick
        self.case = case  # only bugs and configurations whose names have this text
        self.references = References(directory)
        self._tolerances: Dict[Tuple[str, str], Dict[str, Path]] = {}

    def prepare(self, models: Iterable[Tuple[Model, str]]) -> None:
        """Makes the references of these models and dtypes."""
        lacking = {(model.name, dtype): (model, dtype) for model, dtype in models}
        for key in self._tolerances:
            lacking.pop(key, None)
        made = self.map("reference", lambda pair: self._estimate(*pair), list(lacking.values()),
                        lambda pair: f"{pair[0].name} {pair[1]}")  # fmt: skip
        self._tolerances.update(zip(lacking, made))

    def reference(self, model: Model, dtype: str) -> Path:
        self.prepare([(model, dtype)])
        return self.references.of(model, dtype)

    def tolerances(self, model: Model, dtype: str) -> Dict[str, Path]:
        self.prepare([(model, dtype)])
        return self._tolerances[model.name, dtype]

    def run(self, configuration: Configuration, *arguments: str) -> Run:
        """A run of this configuration, with these further arguments of the program. Its reference must be prepared."""
        home = Path(tempfile.mkdtemp(dir=self.directory))
        collect(configuration, home, *arguments)
        model, dtype = configuration.model, configuration.dtype
        return Run(configuration, home, self.references.of(model, dtype), self._tolerances[model.name, dtype])

    def map(self, what: str, work: Callable, items: List, name_of: Callable) -> List:
        """work(item) of each, some at a time, in order; a line of progress as each is done."""
        done = 0

        def one(item):
            nonlocal done
            started = time.monotonic()
            result = work(item)
            done += 1
            print(f"evaluate: {what} {done}/{len(items)}  {time.monotonic() - started:5.1f} s  {name_of(item)}",
                  file=sys.stderr, flush=True)  # fmt: skip
            return result

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(one, items))

    def _estimate(self, model: Model, dtype: str) -> Dict[str, Path]:
        home = self.references.of(model, dtype)
        names, default = estimators()
        files = {}
        for name in names:
            files[name] = home / ("tolerance.yaml" if name == default else f"tolerance-{name}.yaml")
            if not files[name].exists():
                run([TTRACE, "estimate-tolerance", "--estimator", name, "--reference", str(home / "trace"), "--runs",
                     str(home / f"runs-{name}"), "-a", str(home / "annotations.yaml"), "-o", str(files[name]), "--",
                     sys.executable, program_of(model), "--dtype", dtype, *model.arguments.split()])  # fmt: skip
        return files


def estimators() -> Tuple[List[str], str]:
    """The ways to estimate that this ttrace has, and the one it takes by itself: what its help says."""
    text = subprocess.run([TTRACE, "estimate-tolerance", "--help"], capture_output=True, text=True, check=True).stdout
    if "--estimator" not in text:
        return ["input"], "input"
    said = re.search(r"--estimator\s[^\n]*\{([^}]*)\}[^\n\[]*\[(\w+)\]", text)
    if not said:
        raise RunError("ttrace estimate-tolerance --help: --estimator lists no choices and default: {a,b} [a] expected")
    return said[1].split(","), said[2]


def read_csv(text: str) -> List[dict]:
    return list(csv.DictReader(text.splitlines()))


def identity(row: dict) -> Tuple[str, str, int, object, str]:
    """Of a finding, or a line of CSV: name, kind, iteration, micro-batch (None: of the whole step), pass. A finding about
    ranks has no name."""
    microbatch = row["microbatch"]
    return (row["name"], row["kind"], int(row["iteration"] or 0), None if microbatch in ("", None) else int(microbatch),
            row["pass"])  # fmt: skip
