"""Commands of the trial, each with an end to its time."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from gpu.rows import Program
from sweeps import warm

ROOT = Path(__file__).resolve().parents[3]
_GRACE = 5.0  # seconds between what asks a command to end and what ends it
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # with which cuBLAS gives the same bits in each run
    # Ranks meet on this machine, which need not have another network.
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
}


class NotHere(Exception):
    """The text says why the program cannot run on this machine, with ttrace or without."""


@dataclass(frozen=True)
class Ended:
    words: list[str]
    code: int
    stdout: str
    stderr: str
    seconds: float

    def last_words(self) -> str:
        """The line of an exception, where there is one, of those on stderr; else the last line."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        named = [line for line in lines if "Error: " in line and not line.startswith("File ")]
        return (named or lines or [f"exit code {self.code}"])[-1]


class OutOfTime(Exception):
    """The text says of what. `ended` is what the command had said by then; None where it did not begin."""

    def __init__(self, text: str, ended: Ended | None = None):
        super().__init__(text)
        self.ended = ended


class Commands:
    def __init__(self, device: str, ttrace: Path, log: Path, end: float):
        """`end`: of all time, by time.monotonic()."""
        self.device, self.end = device, end
        self._ttrace, self._log = ttrace, log

    def ttrace(self, *words: object, until: float) -> Ended:
        return self.run([str(self._ttrace), *map(str, words)], until)

    def command_of(self, program: Program) -> list[str]:
        """As a user starts it. On a CPU, where to import PyTorch takes most of the time, by the server of `warm`."""
        script, python = ROOT / "tools/frameworks" / program.script, _python_of(program)
        if self.device == "cpu" and python == sys.executable:
            return warm.command(script, *program.words, ranks=program.ranks)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(program.ranks)]
        return [python, *(launch if program.ranks > 1 or "nccl" in program.words else []), str(script), *program.words]

    def run(self, words: list[str], until: float) -> Ended:
        """Raises OutOfTime."""
        started = time.monotonic()
        limit = min(until, self.end) - started
        if limit <= 0:
            raise OutOfTime("its time was over")
        with subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **_ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                stdout, stderr = _end(process)
                ended = Ended(words, -signal.SIGTERM, stdout, stderr, limit)
                raise OutOfTime(f"{limit:.0f} s were not enough for: {_said(words)}", ended) from None
            except BaseException:
                _end(process)
                raise
        ended = Ended(words, process.returncode, stdout, stderr, time.monotonic() - started)
        if ended.code != 0:
            with self._log.open("a") as log:
                log.write(f"$ {_said(words)}\nexit code {ended.code}\n{stderr[-4000:]}\n")
        return ended


def _end(process: subprocess.Popen) -> tuple[str, str]:
    """What it has written. Launchers pass SIGTERM on to their ranks, which are in sessions of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_GRACE)
    return "", ""


def _python_of(program: Program) -> str:
    """Raises NotHere."""
    if not program.script.startswith("transformers/") or importlib.util.find_spec("transformers"):
        return sys.executable
    python = ROOT / ".venv-transformers/bin/python"
    if not python.exists():
        raise NotHere("no transformers, neither here nor in .venv-transformers")
    return str(python)


def _said(words: list[str]) -> str:
    return " ".join(words).replace(f"{ROOT}/", "")
