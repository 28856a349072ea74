"""The program itself: its arguments reach Python, and what Python says reaches the user."""

import os
import signal
import subprocess
import sys
import time

import numpy
import pytest

from traces import PROGRAM, Tensor, record_run

PYTHON = f"--python={sys.executable}"


@pytest.fixture
def dumped(tmp_path):
    values = numpy.arange(6, dtype="float32").reshape(2, 3)
    numpy.savez(tmp_path / "-dump.npz", mlp=values)
    record_run(tmp_path / "recorded", [[Tensor("mlp", values)]])


def test_a_file_is_imported(ttrace, dumped):
    words = ("import", "files", "-o", "trace", "--kind", "output", PYTHON, "--", "-dump.npz")
    assert ttrace.reports(*words, code=0) == "trace: 1 tensor, 24 bytes\n"
    assert ttrace.compares("recorded", "trace", code=0).startswith("same\n")
    assert ttrace.refuses(*words) == "trace: there already; expected a new or empty directory"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_import_that_is_ended_leaves_nothing_that_a_second_one_trips_over(ttrace, tmp_path, number):
    big = {f"m{i}": numpy.full((1000, 1000), i, "float32") for i in range(60)}
    numpy.savez(tmp_path / "dump.npz", **big)
    words = ["import", "files", "-o", "trace", "--kind", "output", "--pattern", "*::{name}", PYTHON, "--", "dump.npz"]
    importing = subprocess.Popen(
        [PROGRAM, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    while importing.poll() is None and not list(tmp_path.glob("*/rank-*.h5")):
        time.sleep(0.001)
    if number == signal.SIGTERM:
        importing.terminate()
    else:
        os.killpg(importing.pid, number)
    stderr = importing.communicate()[1].decode()
    assert importing.returncode != 0 and not (tmp_path / "trace").exists()
    if number == signal.SIGTERM:
        assert stderr == "ttrace: error: trace: stopped by a signal; nothing is left\n"
        assert os.listdir(tmp_path) == ["dump.npz"]
    ttrace.reports(*words, code=0)


def test_an_import_that_is_ended_while_a_package_is_imported_says_so(ttrace, tmp_path, dumped):
    package = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGTERM)
    [None for _ in range(1000)]
except BaseException:
    raise ImportError("cannot be imported")  # as NumPy's extension does
"""
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "numpy.py").write_text(package)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "stopped")}
    words = [PROGRAM, "import", "files", "-o", "trace", "--kind", "output", PYTHON, "--", "-dump.npz"]
    result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode != 0 and not (tmp_path / "trace").exists()
    assert result.stderr == "ttrace: error: trace: stopped by a signal; nothing is left\n"


def test_what_python_refuses_is_the_one_line(ttrace, dumped):
    words = ("import", "files", "-o", "trace", PYTHON, "--", "-dump.npz")
    assert ttrace.refuses(*words).startswith("nothing says of which kind the tensors are; expected --kind")
    words = ("import", "checkpoint", "-o", "trace", "--kind", "output", PYTHON, "--", "-dump.npz")
    assert ttrace.refuses(*words) == "--kind: is an option of the format files; expected none for checkpoint"
    assert ttrace.refuses("import", "msprobe", "x", "-o", "trace", PYTHON).startswith("x: No such file or directory")


def test_a_python_that_is_not_there_or_fails(ttrace, tmp_path, dumped):
    words = ("import", "files", "-o", "trace", "--kind", "output", "--", "-dump.npz")
    options = words[:2] + ("--python=no-such-python",) + words[2:]
    assert "--python no-such-python" in ttrace.refuses(*options)
    (tmp_path / "fails").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "fails").chmod(0o755)
    options = words[:2] + ("--python=./fails",) + words[2:]
    assert "exited with code 3" in ttrace.refuses(*options)


def test_a_package_that_is_missing_is_named(ttrace, tmp_path, dumped):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "numpy.py").write_text("raise ModuleNotFoundError('no', name='numpy')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "hidden")}
    words = [PROGRAM, "import", "files", "-o", "trace", "--kind", "output", PYTHON, "--", "-dump.npz"]
    result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "pip install numpy" in result.stderr


def test_modules_beside_the_source_are_not_imported(ttrace, tmp_path, dumped):
    (tmp_path / "numpy.py").write_text("open('ran', 'w')\n")
    ttrace.reports("import", "files", "-o", "trace", "--kind", "output", PYTHON, "--", "-dump.npz", code=0)
    assert not (tmp_path / "ran").exists()


def test_a_job_that_records_imports_nothing_of_it(tmp_path):
    folder = PROGRAM.parent.parent / "share" / "ttrace"
    code = "import sys, ttrace_torch.library; assert not any(name.startswith('ttrace_import') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(folder)}, check=True, timeout=60)
