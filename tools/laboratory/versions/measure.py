"""Installs a release and runs its programs and tests. What was found stays in rows.json, program by program, so that a
run that was stopped goes on where it was."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from freshness import commit
from programs import runs
from programs.table import ROOT
from sweeps import warm

from .table import Release

WORK = ROOT / "build" / "versions"
ROWS = Path(__file__).resolve().parent / "rows.json"  # what RESULTS.md is made of
_SECONDS = 600  # which no file of tests takes but where something hangs
_FACTS = """
import importlib.metadata, json, platform, sys, torch
names = sys.argv[1:]
print(json.dumps([platform.python_version(), torch.__version__, [importlib.metadata.version(name) for name in names]]))
"""


@dataclass(frozen=True)
class Result:
    """Of a release."""

    commit: str  # which was measured
    refused: str = ""  # why it could not be installed
    python: str = ""
    torch: str = ""  # with its build: 2.13.0+cpu
    seconds: float = 0.0  # of programs and tests, without the installation
    programs: dict[str, runs.Row] = field(default_factory=dict)
    tests: dict[str, dict[str, int]] = field(default_factory=dict)  # by file: outcome -> how many

    def has(self, release: Release) -> bool:
        """Whether all of the release has been run."""
        names = {program.name for program in release.programs}
        return names <= self.programs.keys() and set(release.tests) <= self.tests.keys()

    def to_json(self) -> dict:
        return asdict(self)

    @staticmethod
    def from_json(result: dict) -> "Result":
        rows = {name: runs.Row.from_json(row) for name, row in result["programs"].items()}
        return Result(**{**result, "programs": rows})


def kept() -> dict[str, Result]:
    """Of the releases that have been run, here or where the page was made; by name."""
    return {name: Result.from_json(row) for name, row in json.loads(ROWS.read_text()).items()} if ROWS.exists() else {}


def is_measured(release: Release) -> bool:
    """At this commit. One that could not be installed may be had by now."""
    result = kept().get(release.name)
    return result is not None and _is_of_this_commit(result) and result.has(release)


def measure(release: Release, any_build: bool, keep: bool) -> Iterator[Result]:
    """Runs what has not been run at this commit; yields what is known after each part, which has been kept. The
    environment is deleted behind it unless it is to be kept; one that is cut leaves it for the next."""
    environment = WORK / release.name / "environment"
    before = kept().get(release.name)
    result = before if before is not None and _is_of_this_commit(before) else Result(commit())
    if refused := _install(release, environment, any_build):
        shutil.rmtree(environment, ignore_errors=True)
        yield _keep(release, Result(commit(), refused=refused))
        return
    python = environment / "bin" / "python"
    version, torch, _ = _facts(python, release)
    result = replace(result, refused="", python=version, torch=torch)
    with _variables(release), warm.server(python):
        for program in release.programs:
            if program.name not in result.programs:
                row = runs.measured(program, python, WORK / release.name / "programs")
                rows = {**result.programs, program.name: row}
                result = _keep(release, replace(result, programs=rows, seconds=result.seconds + row.seconds))
                yield result
        for file in release.tests:
            if file not in result.tests:
                started = time.monotonic()
                tests = {**result.tests, file: _test(file, python, WORK / release.name / "tests.txt")}
                seconds = result.seconds + time.monotonic() - started
                result = _keep(release, replace(result, tests=tests, seconds=round(seconds, 1)))
                yield result
    if not keep:
        shutil.rmtree(environment)


def _is_of_this_commit(result: Result) -> bool:
    return result.commit == commit() and "changed" not in result.commit


def _install(release: Release, environment: Path, any_build: bool) -> str:
    """Why it could not be installed, or ""."""
    environment.parent.mkdir(parents=True, exist_ok=True)
    listed = environment.parent / "requirements.txt"
    listed.write_text("".join(f"{line}\n" for line in release.asked_for(any_build)))
    command = ["tools/venv", environment, listed, ".venv"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    (environment.parent / "install.txt").write_text(done.stderr)
    if done.returncode != 0:
        errors = re.findall(r"^ERROR: (.*)", done.stderr, re.M) or done.stderr.strip().splitlines()[-1:] or ["no word"]
        build = "" if any_build or not _asks_for_build(release) else "no build for the CPU alone that pip knows of: "
        return build + re.sub(r" \(from versions: .*\)", "", errors[0])
    try:
        found = _facts(environment / "bin" / "python", release)
    except subprocess.CalledProcessError as error:
        return f"torch can't be imported: {error.stderr.strip().splitlines()[-1]}"
    return "" if found[2][0].partition("+")[0] == release.version else f"{found[2][0]} was installed in its place"


def _asks_for_build(release: Release) -> bool:
    return release.asked_for(any_build=False) != release.requirements


def _facts(python: Path, release: Release) -> tuple[str, str, list[str]]:
    """Its version, PyTorch's, and those of the package."""
    command = [python, "-c", _FACTS, release.package]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(json.loads(done.stdout.strip().splitlines()[-1]))


def _test(file: str, python: Path, log: Path) -> dict[str, int]:
    """How many of its tests passed, failed, and so on."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests" / "collect" / file]
    environment = os.environ | {"TTRACE_PROGRAM": str(runs.TTRACE), "TTRACE_BUILD": str(ROOT / "build")}
    # Its conftest.py starts servers of its own.
    environment = {name: value for name, value in environment.items() if name != warm.SOCKET}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, env=environment, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {"timed out": 1}
    log.open("a").write(f"{file}\n{done.stdout}{done.stderr}\n")
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    counts = {outcome: int(count) for count, outcome in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)}
    return counts or {"failed": 1}


@contextlib.contextmanager
def _variables(release: Release) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(release.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def forget(release: Release) -> None:
    _write({name: result for name, result in kept().items() if name != release.name})


def _keep(release: Release, result: Result) -> Result:
    _write({**kept(), release.name: result})
    return result


def _write(results: dict[str, Result]) -> None:
    """A release a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(results[name].to_json())}" for name in sorted(results)]
    new = ROWS.with_suffix(".new")
    new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    new.replace(ROWS)
