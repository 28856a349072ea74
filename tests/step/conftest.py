"""Runs of the real program, right and with faults that leave no trace in most tensors."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TTRACE = os.environ["TTRACE_PROGRAM"]


class Runs:
    def __init__(self, directory):
        self._directory = directory

    def collect(self, fault, ranks=1, *options):
        """The trace of two small iterations of tinygpt with a fault in its step; made when first asked for."""
        trace = self._directory / f"{fault}-{ranks}{''.join(options)}"
        if not trace.exists():
            python = pathlib.Path(sys.executable)
            launch = [python.parent / "torchrun", "--standalone", "--nproc-per-node", ranks] if ranks > 1 else [python]
            program = [ROOT / "tools/evaluations/faulty_step.py", fault]
            model = ["--layers", 1, "--steps", 2, "--micro-batches", 2, *options]
            collect = [TTRACE, "collect", "-o", trace, "--iterations", "0,1", "--"]
            self.run(0, *collect, *launch, *program, *model)
        return trace

    def check(self, candidate, reference, expect):
        return self._report(expect, "check", "--reference", reference, "--candidate", candidate)

    def abft(self, trace, *options, expect):
        return self._report(expect, "abft", trace, *options)

    def _report(self, expect, *words):
        output = self._directory / "report.json"
        self.run(expect, TTRACE, *words, "--json", output)
        return json.loads(output.read_text())

    def run(self, expect, *words):
        result = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert result.returncode == expect, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))
