"""What the sections of an evaluation share: references and their tolerances, and runs two at a time."""

import csv
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sweeps.configurations import Configuration, Model
from sweeps.runs import References, RunError, check, collect, estimate

ESTIMATORS = ["input", "modules"]
AT_A_TIME = max(1, min(4, (os.cpu_count() or 1)))  # runs; each has a thread a rank


@dataclass
class Run:
    """A candidate that was collected. `home` has `trace`, `annotations.yaml` and `measured.csv`."""

    configuration: Configuration
    home: Path
    reference: Path
    tolerances: dict[str, Path]  # by estimator, the default one first

    def report(self, estimator: str = "") -> dict:
        """With the tolerances of this estimator; of the default one where none is named."""
        return check(self.home, self.reference, self.tolerances[estimator or next(iter(self.tolerances))])

    def measured(self) -> list[dict]:
        """What the last report measured of every tensor, as text."""
        return read_csv((self.home / "measured.csv").read_text())


class Bench:
    def __init__(self, directory: Path, quick: bool, case: str):
        self.directory = directory
        self.quick = quick
        self.case = case  # only bugs and configurations whose names have this text
        self.references = References(directory)
        self._tolerances: dict[tuple[str, str], dict[str, Path]] = {}

    def chosen(self, items: Iterable, name_of: Callable) -> list:
        """Those with `case` in their names. Throws RunError when there is none: nothing measured is no success."""
        found = [item for item in items if self.case in name_of(item)]
        if not found:
            raise RunError(
                f"--case '{self.case}': no bug, configuration or mutant of this section has that in its name"
            )
        return found

    def prepare(self, models: Iterable[tuple[Model, str]], every_estimator: bool = False) -> None:
        """Makes the references of these models and dtypes, with the tolerances of the default estimator or of all."""
        pairs = {(model.name, dtype): (model, dtype) for model, dtype in models}
        missing = [pair for key, pair in pairs.items() if key not in self._tolerances]
        self.map("reference", lambda pair: self._make_reference(*pair), missing, _name_of)
        if every_estimator:
            self.map("estimators", lambda pair: self._estimate_otherwise(*pair), list(pairs.values()), _name_of)

    def tolerance(self, model: Model, dtype: str) -> Path:
        """Of the default estimator."""
        return next(iter(self._tolerances[model.name, dtype].values()))

    def run(self, configuration: Configuration, *arguments: str) -> Run:
        """A run of this configuration, with these further arguments of the program. Its reference must be prepared."""
        home = Path(tempfile.mkdtemp(dir=self.directory))
        collect(configuration, home, *arguments)
        model, dtype = configuration.model, configuration.dtype
        return Run(configuration, home, self.references.of(model, dtype), self._tolerances[model.name, dtype])

    def map(self, what: str, work: Callable, items: list, name_of: Callable) -> list:
        """work(item) of each, some at a time, in order; a line of progress as each is done."""
        done = 0

        def one(item):
            nonlocal done
            started = time.monotonic()
            result = work(item)
            done += 1
            print(
                f"evaluate: {what} {done}/{len(items)}  {time.monotonic() - started:5.1f} s  {name_of(item)}",
                file=sys.stderr,
                flush=True,
            )
            return result

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(one, items))

    def _make_reference(self, model: Model, dtype: str) -> None:
        tolerance = self.references.of(model, dtype) / "tolerance.yaml"
        self._tolerances[model.name, dtype] = {estimator_of(tolerance): tolerance}

    def _estimate_otherwise(self, model: Model, dtype: str) -> None:
        files, home = self._tolerances[model.name, dtype], self.references.of(model, dtype)
        for name in ESTIMATORS:
            if name in files:
                continue
            files[name] = home / f"tolerance-{name}.yaml"
            estimate(home, model, dtype, files[name], "--estimator", name)


def _name_of(pair: tuple[Model, str]) -> str:
    return f"{pair[0].name} {pair[1]}"


def estimator_of(tolerance: Path) -> str:
    for line in tolerance.read_text().splitlines():
        if line.startswith("estimator: "):
            return line.removeprefix("estimator: ")
    return "input"


def read_csv(text: str) -> list[dict]:
    return list(csv.DictReader(text.splitlines()))


def identity(row: dict) -> tuple[str, str, int, object, str]:
    """Of a finding, or a line of CSV: name, kind, iteration, micro-batch (None: of the whole step), pass. A finding
    about ranks has no name."""
    microbatch = row["microbatch"]
    return (
        row["name"],
        row["kind"],
        int(row["iteration"] or 0),
        None if microbatch in ("", None) else int(microbatch),
        row["pass"],
    )
