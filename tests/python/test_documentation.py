"""What the package says of itself: docstrings, types and the page are run, checked and executed."""

import doctest
import importlib
import inspect
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import PACKAGE

import ttrace

SOURCES = pathlib.Path(__file__).parents[2] / "src" / "python"
MODULES = ["ttrace", "ttrace.traces", "ttrace.reports", "ttrace.comparing", "ttrace.recording", "ttrace.testing"]

PROGRAM = """\
import numpy
import ttrace

trace = ttrace.open("candidate", annotations="gpt.yaml", reference=ttrace.open("reference"))
tensor: ttrace.Tensor = trace.tensor("mlp", kind="output")
part: float = float(tensor[0:4, -1].numpy().astype(numpy.float64).sum())
shape: tuple[int, ...] = tensor.shape
report = ttrace.check("candidate", "reference", tolerance="tolerance.yaml")
worst: list[tuple[int, ...]] = [finding.worst.index for finding in report.findings if finding.worst is not None]
roots: list[str] = [root.sentence for root in report.roots]
if not report.same:
    raise SystemExit(report.sentence)
with ttrace.record("again", axes="tp=2"):
    pass
with ttrace.Recorder("own", world_size=2, axes="tp=2", run_id="1") as recorder:
    recorder.record("mlp", numpy.zeros(3), kind="grad_output", axes={"tp": 0})
reference = ttrace.testing.record_reference("home", lambda: None)
same: bool = ttrace.compare({"w": numpy.zeros(3)}, "candidate.npz", rounded_to="bf16").same
ttrace.testing.assert_same("again", reference.trace, tolerance=reference.tolerance)
"""


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_are_true(traces, module):
    failed, tried = doctest.testmod(importlib.import_module(module), extraglobs={"ttrace": ttrace})
    assert failed == 0
    assert tried > 0 or module in ("ttrace", "ttrace.recording")


def test_the_examples_of_the_page_are_true(traces):
    failed, tried = doctest.testfile(str(SOURCES / "README.md"), module_relative=False)
    assert (failed, tried > 10) == (0, True)


def test_everything_public_has_a_docstring():
    for name in ttrace.__all__:
        value = getattr(ttrace, name)
        assert name == "__version__" or inspect.getdoc(value), name
        if inspect.isclass(value) and value.__module__ == "ttrace.traces":
            for member, function in vars(value).items():
                is_obvious = member.startswith("_") or member in ("ndim",)
                assert is_obvious or not (callable(function) or isinstance(function, property)) or function.__doc__


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """mypy(directory, arguments, environment): the process, run there."""
    cache = tmp_path_factory.mktemp("mypy")  # of NumPy's types, which take it half a minute

    def run(directory, *arguments, **environment):
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment)

    return run


def test_a_users_program_is_typed(tmp_path, mypy):
    (tmp_path / "program.py").write_text(PROGRAM)
    process = mypy(tmp_path, "program.py", MYPYPATH=str(PACKAGE))
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('trace.tensor("mlp", kind="output")', 'trace.tensor("mlp", knid="output")'),
        ("shape: tuple[int, ...]", "shape: list[int]"),
        ("report.same", "report.equal"),
        ("if finding.worst is not None", ""),
        ('tolerance="tolerance.yaml"', "tolerance=0.1"),
        ('kind="grad_output"', 'kind="gradient"'),
    ],
)
def test_a_mistake_in_it_is_found(tmp_path, mypy, right, wrong):
    assert right in PROGRAM
    (tmp_path / "program.py").write_text(PROGRAM.replace(right, wrong, 1))
    process = mypy(tmp_path, "program.py", MYPYPATH=str(PACKAGE))
    assert process.returncode == 1, process.stdout
    assert "Found 1 error" in process.stdout


def test_the_package_itself_is_typed_with_the_stub_of_its_extension(tmp_path, mypy):
    # Not where it lies: mypy takes the package of a folder on its path for another's.
    shutil.copytree(PACKAGE, tmp_path / "copy", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    process = mypy(tmp_path / "copy", "-p", "ttrace")
    assert process.returncode == 0, process.stdout
    assert "std::" not in (PACKAGE / "ttrace" / "_core.pyi").read_text()  # a type that nanobind did not know
