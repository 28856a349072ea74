"""A trial: a ttrace.yaml of a framework's folder, run by `ttrace run` as a user would, and its candidates as rows."""

import json
import re
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import yaml

from freshness import commit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TTRACE = ROOT / "build/bin/ttrace"
WORK = ROOT / "build/frameworks"
FOUND = ROOT / "tools/laboratory/found"  # programs with a bug of a released package
PUBLISHED = HERE / "rows.json"  # by trial, what RESULTS.md is made of


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
    root: str = ""  # the tensor where it begins to differ, and its kind
    expected_root: str = ""  # empty: any

    def expected(self) -> bool:
        is_at_root = self.expected_root in ("", self.root)
        return is_at_root and self.verdict == ("same" if self.correct else "different")

    def to_json(self) -> dict:
        row = asdict(self)
        row["pass"] = row.pop("passed")
        return row

    @staticmethod
    def from_json(row: dict) -> "Row":
        return Row(**{"passed" if key == "pass" else key: value for key, value in row.items()})


@dataclass(frozen=True)
class Result:
    """A trial with all of its candidates."""

    commit: str  # which was measured; of results of before that was written, by which they were published
    seconds: float | None  # None: of before that was written
    rows: list[Row]

    def to_json(self) -> dict:
        return {"commit": self.commit, "seconds": self.seconds, "rows": [row.to_json() for row in self.rows]}

    @staticmethod
    def from_json(result: dict) -> "Result":
        return Result(**{**result, "rows": [Row.from_json(row) for row in result["rows"]]})


@dataclass(frozen=True)
class Trial:
    path: Path

    @property
    def name(self) -> str:
        """`megatron/gpt`, `found/qk-norm`."""
        folder = self.path.parent
        return str(folder.relative_to(FOUND.parent) if self.is_found() else (folder / self.path.stem).relative_to(HERE))

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
        self._work.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        rows = [row for pattern in only for row in self._run(pattern, refresh)]
        if only == ["*"]:
            if self.description().get("correspondence"):
                rows += self._run_drafted(rows)
            result = Result(commit(), round(time.monotonic() - started, 1), rows)
            self._kept.write_text(json.dumps(result.to_json(), indent=1) + "\n")
        return rows

    def latest(self) -> Result | None:
        """Of the last run with all candidates, here or where the page was made; None where there was none yet."""
        if self._kept.exists():
            result = json.loads(self._kept.read_text())
        else:
            result = json.loads(PUBLISHED.read_text()).get(self.name)
        return None if result is None else Result.from_json(result)

    @property
    def _work(self) -> Path:
        return WORK / self.name

    @property
    def _kept(self) -> Path:
        return self._work / "result.json"

    def _run_drafted(self, rows: list[Row]) -> list[Row]:
        """The same traces by a correspondence that is drafted from the reference and the first candidate. Each must
        come out as in `rows`, those of the correspondence that comes with ttrace."""
        names = [row.strategy.split(": ")[1] for row in rows]
        draft = self._work / "draft.yaml"
        reference, annotations = ["--reference", self._work / "reference/trace"], []
        if "annotations" in self.description():
            annotations = ["-a", self.description()["annotations"]]
        first = self._work / "candidates" / names[0] / "trace"
        if self._ttrace("annotate", first, *reference, *annotations, "-o", draft) != 0:
            raise TrialError(f"{self.name}: no correspondence could be drafted from {names[0]}")
        tolerance = ["-t", self._work / "tolerance/tolerance.yaml", "--correspondence", draft]
        drafted = []
        for name, row in zip(names, rows, strict=True):
            report = self._work / f"drafted-{name}.json"
            report.unlink(missing_ok=True)
            candidate = ["--candidate", self._work / "candidates" / name / "trace"]
            self._ttrace("check", "-q", *reference, *candidate, *annotations, *tolerance, "--json", report)
            if not report.exists():
                raise TrialError(f"{self.name}: {name} could not be checked by the draft")
            strategy = row.strategy.replace(": ", ", drafted: ")
            fields = _fields(json.loads(report.read_text()))
            drafted.append(replace(row, strategy=strategy, expected_root=row.root, **fields))
        return drafted

    def _ttrace(self, *words: object) -> int:
        return subprocess.run([TTRACE, *map(str, words)], cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode

    def _run(self, pattern: str, refresh: bool) -> list[Row]:
        report = self._work / "report.json"
        report.unlink(missing_ok=True)
        words = ["--work", self._work, "--only", pattern, "--json", report, *(["--refresh"] if refresh else [])]
        code = self._ttrace("run", self.path.relative_to(ROOT), *words)
        if not report.exists():
            raise TrialError(f"{self.name}: ttrace run ended with exit code {code} and no report")
        found = json.loads(report.read_text())
        if found["problem"] or not found["candidates"]:
            raise TrialError(f"{self.name}: {found['problem'] or found['sentence']}")
        return [self._row(candidate) for candidate in found["candidates"]]

    def _row(self, candidate: dict) -> Row:
        declared = self._declaration_of(candidate["name"])
        parameters = {**(self.description().get("parameters") or {}), **(declared.get("parameters") or {})}
        options = [f"--axes {declared['axes']}"] if "axes" in declared else []
        options += [f"--set {name}={value}" for name, value in parameters.items()]
        fields = _fields(candidate["report"] or {"counts": {}})
        if candidate["problem"]:
            fields["sentence"] = _line(candidate["problem"])
        return Row(
            framework=framework_of(candidate["command"]),
            strategy=f"{self.name.split('/', 1)[1]}: {candidate['name']}",
            correct=self._is_correct(candidate["name"]),
            annotation_lines=sum(map(lines_of, self._annotation_files())),
            options=" ".join(options),
            **(fields | {"verdict": candidate["verdict"]}),
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


def _fields(report: dict) -> dict:
    """What a row says of a check's report."""
    counts = report["counts"]
    root = report.get("root_cause") or {}
    return {
        "verdict": report.get("verdict", ""),
        "compared": counts.get("compared", 0),
        "passed": counts.get("pass", 0),
        "fail": counts.get("fail", 0),
        "missing": counts.get("missing", 0),
        "not_seen": counts.get("not_seen", 0),
        "untrusted": counts.get("untrusted", 0),
        "waived": report.get("waived", 0),
        "sentence": _line(root.get("sentence") or root.get("message") or ""),
        "root": f"{root['name']} {root['kind']}" if root else "",
    }


def _line(text: str) -> str:
    return text.replace(f"{ROOT}/", "").splitlines()[0] if text else ""


def all_trials() -> list[Trial]:
    """In the order of the page: frameworks by name, then what was found."""
    folders = sorted(path for path in HERE.iterdir() if path.is_dir())
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
