"""A trial: a ttrace.yaml of a framework's folder, run by `ttrace run` as a user would, and its candidates as rows."""

import json
import re
import subprocess
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TTRACE = ROOT / "build/bin/ttrace"
WORK = ROOT / "build/frameworks"
FOUND = HERE / "found"  # programs with a bug of a released package


class TrialError(Exception):
    """The text says which trial could not be run, and why."""


@dataclass(frozen=True)
class Row:
    """One candidate. `framework` is a package and its version, `strategy` the trial and the candidate in it."""

    framework: str
    strategy: str
    correct: bool
    verdict: str
    compared: int
    passed: int
    fail: int
    missing: int
    not_seen: int
    untrusted: int
    waived: int
    annotation_lines: int  # beyond the presets
    options: str  # axes and parameters that had to be said
    sentence: str  # what ttrace says of it, or why it could not look

    def expected(self) -> bool:
        return self.verdict == ("same" if self.correct else "different")

    def to_json(self) -> dict:
        row = asdict(self)
        row["pass"] = row.pop("passed")
        return row

    @staticmethod
    def from_json(row: dict) -> "Row":
        return Row(**{"passed" if key == "pass" else key: value for key, value in row.items()})


@dataclass(frozen=True)
class Trial:
    path: Path

    @property
    def name(self) -> str:
        """`megatron/gpt`, `found/qk-norm`."""
        return str(
            self.path.parent.relative_to(HERE) if self.is_found() else self.path.relative_to(HERE).with_suffix("")
        )

    def is_found(self) -> bool:
        return FOUND in self.path.parents

    def description(self) -> dict:
        return yaml.safe_load(self.path.read_text())

    def environments(self) -> list[str]:
        """The directories of the Python environments that its commands name, but for .venv, which is always there."""
        return sorted(set(re.findall(r"\.venv-[\w.-]+", self.path.read_text())))

    def run(self, only: list[str], refresh: bool) -> list[Row]:
        """Of the candidates whose names fit one of these globs. What `ttrace run` says on the way goes to stderr.
        Raises TrialError."""
        for environment in self.environments():
            make_environment(environment)
        work = WORK / self.name
        work.mkdir(parents=True, exist_ok=True)
        rows = [row for pattern in only for row in self._run(pattern, work, refresh)]
        if only == ["*"]:
            self._kept.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
        return rows

    def latest(self) -> list[Row] | None:
        """Of the last run with all candidates; None where there was none yet."""
        return [Row.from_json(row) for row in json.loads(self._kept.read_text())] if self._kept.exists() else None

    @property
    def _kept(self) -> Path:
        return WORK / self.name / "rows.json"

    def _run(self, pattern: str, work: Path, refresh: bool) -> list[Row]:
        report = work / "report.json"
        report.unlink(missing_ok=True)
        command = [TTRACE, "run", self.path.relative_to(ROOT), "--work", work, "--only", pattern, "--json", report]
        result = subprocess.run(
            [*map(str, command), *(["--refresh"] if refresh else [])], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
        )
        if not report.exists():
            raise TrialError(f"{self.name}: ttrace run ended with exit code {result.returncode} and no report")
        found = json.loads(report.read_text())
        if found["problem"] or not found["candidates"]:
            raise TrialError(f"{self.name}: {found['problem'] or found['sentence']}")
        return [self._row(candidate) for candidate in found["candidates"]]

    def _row(self, candidate: dict) -> Row:
        report = candidate["report"] or {"counts": {}}
        counts = report["counts"]
        declared = self._declaration_of(candidate["name"])
        parameters = {**(self.description().get("parameters") or {}), **(declared.get("parameters") or {})}
        options = [f"--axes {declared['axes']}"] if "axes" in declared else []
        options += [f"--set {name}={value}" for name, value in parameters.items()]
        root = report.get("root_cause") or {}
        sentence = candidate["problem"] or root.get("sentence") or root.get("message") or ""
        return Row(
            framework=framework_of(candidate["command"]),
            strategy=f"{self.name.split('/', 1)[1]}: {candidate['name']}",
            correct=self._is_correct(candidate["name"]),
            verdict=candidate["verdict"],
            compared=counts.get("compared", 0),
            passed=counts.get("pass", 0),
            fail=counts.get("fail", 0),
            missing=counts.get("missing", 0),
            not_seen=counts.get("not_seen", 0),
            untrusted=counts.get("untrusted", 0),
            waived=report.get("waived", 0),
            annotation_lines=sum(map(lines_of, self._annotation_files())),
            options=" ".join(options),
            sentence=sentence.replace(f"{ROOT}/", "").splitlines()[0] if sentence else "",
        )

    def _is_correct(self, candidate: str) -> bool:
        """Programs of `found` are wrong, and others right, unless their names say so."""
        return candidate.startswith("correct") if self.is_found() else not candidate.startswith("wrong")

    def _declaration_of(self, candidate: str) -> dict:
        """What the file says of the candidate; of a matrix without its values."""
        for declared in self.description()["candidates"]:
            if fnmatch(candidate, re.sub(r"\{\w+\}", "*", declared["name"])):
                return declared
        return {}

    def _annotation_files(self) -> list[Path]:
        """Those of the project; presets go by their names."""
        files = self.description().get("annotations") or []
        return [ROOT / file for file in ([files] if isinstance(files, str) else files) if (ROOT / file).is_file()]


def all_trials() -> list[Trial]:
    """In the order of the page: frameworks by name, then what was found."""
    folders = sorted(path for path in HERE.iterdir() if path.is_dir() and path != FOUND)
    files = [file for folder in folders for file in sorted(folder.glob("*.yaml")) if is_run_file(file)]
    return [Trial(file) for file in [*files, *sorted(FOUND.glob("*/ttrace.yaml"))]]


def is_run_file(file: Path) -> bool:
    """Annotation files lie beside them."""
    return "candidates:" in file.read_text()


def lines_of(annotations: Path) -> int:
    return sum(1 for line in annotations.read_text().splitlines() if line.strip() and not line.strip().startswith("#"))


def make_environment(name: str) -> None:
    """`.venv-megatron-0.16` is made of megatron/requirements-0.16.txt, with the packages of .venv beside its own.
    Raises TrialError."""
    folder, _, version = name.removeprefix(".venv-").partition("-")
    requirements = HERE / folder / (f"requirements-{version}.txt" if version else "requirements.txt")
    if not requirements.is_file():
        raise TrialError(f"{name}: no {requirements.relative_to(ROOT)}")
    command = ["tools/venv", name, str(requirements.relative_to(ROOT)), ".venv"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise TrialError(f"{name}: {requirements.relative_to(ROOT)} could not be installed")


def framework_of(command: str) -> str:
    """Package and version that a command runs on: the first line of its environment's list; else PyTorch."""
    found = re.search(r"\.venv-(\w+)-?([\w.]*)/", command)
    requirements = ROOT / "tools/requirements.txt"
    if found:
        folder, version = found.groups()
        requirements = HERE / folder / (f"requirements-{version}.txt" if version else "requirements.txt")
    packages = [line for line in requirements.read_text().splitlines() if re.match(r"[\w-]+==", line)]
    return packages[0].split(" ")[0].replace("==", " ")
