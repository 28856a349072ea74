"""A command that is short of something ends with the verdict that it has without that, or with 2 and one line: never
with 1 for a candidate that is the same, or with 0 for one that is not."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy
import pytest
from conftest import TTRACE

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cli"))
from traces import Tensor, record_run

NOBODY = 65534
MiB = 1 << 20

# By what is short: the limit, and what is left of it.
QUICK = {
    "address space": (resource.RLIMIT_AS, [40 * MiB, 90 * MiB, 150 * MiB, 400 * MiB]),
    "memory": (resource.RLIMIT_DATA, [1 * MiB, 4 * MiB, 16 * MiB]),
    "processes": (resource.RLIMIT_NPROC, [1]),
    "files": (resource.RLIMIT_NOFILE, [4, 6]),
    "disk": (resource.RLIMIT_FSIZE, [0, 100]),
    "stack": (resource.RLIMIT_STACK, [64 << 10, 512 << 10]),
}
ALL = {
    "address space": (resource.RLIMIT_AS, [n * MiB for n in (1, 10, *range(20, 200, 4), 300, 500, 700, 1000, 2000)]),
    "memory": (resource.RLIMIT_DATA, [n * MiB // 4 for n in (0, *range(1, 40), 60, 100, 200, 400, 800)]),
    "processes": (resource.RLIMIT_NPROC, [1, 2, 3, 4, 8, 16, 64]),
    "files": (resource.RLIMIT_NOFILE, [*range(1, 16), 20, 30]),
    "disk": (resource.RLIMIT_FSIZE, [0, 1, 100, 1000, 4096, 10_000, 100_000]),
    "stack": (resource.RLIMIT_STACK, [n << 10 for n in (0, 16, 32, 64, 128, 256, 512, 1024, 4096)]),
}

SIDES = ["--reference", "reference", "--candidate"]
REPORTS = ["--json", "out/r.json", "--html", "out/r.html", "--junit", "out/r.xml", "--csv", "out/r.csv"]
ESTIMATE = ["estimate-tolerance", "--reference", "reference", "--perturbed", "p1", "p2", "p3"]
IMPORTED = ["--kind", "output", "--pattern", "*::{name}"]
STARTS_A_PROCESS = {"import", "collect", "watch", "calibrate"}
PRODUCT = r'{"platform":"p","trials":1,"sizes":[1]}\nfloat32 1\n\000\000\200\077\000\000\200\077end\n'
# Each command, and the code that it ends with where nothing is short.
COMMANDS = {
    "check, same": (["check", *SIDES, "same", "-t", "default", "--threads", "16", *REPORTS], 0),
    "check, different": (["check", *SIDES, "different", "-t", "default", "--threads", "16", *REPORTS], 1),
    "check, measured": (["check", *SIDES, "same", "-t", "tolerance.yaml", "--history", "out/h.sqlite"], 0),
    "estimate-tolerance": ([*ESTIMATE, "-o", "out/t.yaml"], 0),
    "abft, right": (["abft", "products", "--threads", "8", "--json", "out/a.json"], 0),
    "abft, wrong": (["abft", "wrong-products", "--threads", "8", "--json", "out/a.json"], 1),
    "calibrate": (["calibrate", "-o", "out/e.yaml", "--", "printf", PRODUCT], 0),
    "sdc": (["sdc", "--healthy", "reference", "--suspect", "different", "--threads", "8"], 1),
    "localize": (["localize", *SIDES, "different", "-t", "default"], 2),  # the trace names no command
    "annotate": (["annotate", "same", "--reference", "reference", "-o", "out/a.yaml"], 0),
    "lint": (["lint", "same", "-a", "a.yaml", "--reference", "reference"], 0),
    "explain": (["explain", "same", "m3"], 0),
    "inspect": (["inspect", "same", "--stats"], 0),
    "show": (["show", "same", "m3"], 0),
    "export": (["export", "same", "-o", "out/e.safetensors"], 0),
    "run": (["run", "ttrace.yaml", "--plan", "--work", "out/work"], 0),
    "import": (["import", "files", "dump.npz", "-o", "out/i", "--python", sys.executable, *IMPORTED], 0),
    "collect": (["collect", "-o", "out/c", "--", "true"], 2),  # it records nothing
    "watch": (["watch", "-o", "out/w", "--", "false"], 2),  # it checks nothing, and 1 would say wrong
    "init": (["init", "-o", "out/ttrace.yaml", "--", "torchrun", "--nproc-per-node", "2", "train.py"], 0),
    "completion": (["completion", "bash"], 0),
    "history": (["history", "h.sqlite"], 0),
    "help": (["help", "check"], 0),
}


def tensors(scale, seed=0):
    values = numpy.random.default_rng(7).standard_normal((64, 64)).astype("float32")
    factors = [(i + 1) * (1 + 1e-7 * seed) * (scale if i == 20 else 1) for i in range(40)]
    return [Tensor(f"m{i}", (values * factor).astype("float32")) for i, factor in enumerate(factors)]


def product(scale):
    inputs, weight = numpy.random.default_rng(7).standard_normal((2, 64, 64)).astype("float32")
    return [
        Tensor("fc", inputs, kind="input", module_class="torch.nn.modules.linear.Linear"),
        Tensor("fc.weight", weight, kind="param", microbatch=-1),
        Tensor("fc", inputs @ weight.T * numpy.float32(scale), module_class="torch.nn.modules.linear.Linear"),
    ]


@pytest.fixture(scope="module")
def place():
    """A directory that anybody may read, with traces, and a folder `out` that anybody may write to."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="starved-"))
    directory.chmod(0o755)
    record_run(directory / "reference", [tensors(1)], run_id="reference")
    for name, scale, seed in (("same", 1, 0), ("different", 3, 0), ("p1", 1, 1), ("p2", 1, 2), ("p3", 1, 3)):
        provenance = json.dumps({"perturb_seed": seed}) if seed else ""
        record_run(directory / name, [tensors(scale, seed)], run_id=name, provenance=provenance)
    record_run(directory / "products", [product(1)])
    record_run(directory / "wrong-products", [product(1.5)])
    numpy.savez(directory / "dump.npz", m1=numpy.ones((3, 4), "float32"))
    (directory / "a.yaml").write_text("m1:\n  output: {}\n")
    (directory / "ttrace.yaml").write_text(
        "reference: {command: 'true', inputs: [a.yaml]}\ncandidates: [{name: a, command: 'true', inputs: [a.yaml]}]\n"
    )
    for words in (
        [*ESTIMATE, "-o", "tolerance.yaml"],
        ["check", *SIDES, "different", "-t", "default", "--history", "h.sqlite"],
    ):
        made = run_starved(directory, words)
        assert made.returncode < 2, made.stderr
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield directory
    shutil.rmtree(directory)


def run_starved(directory, words, limit=None, left=0):
    """Runs the command with so little of what is limited; where that is processes as nobody: root has no limit of them.
    Nobody may not be let to the Python that imports, which ends with 2 as well."""
    shutil.rmtree(directory / "out", ignore_errors=True)
    (directory / "out").mkdir()
    (directory / "out").chmod(0o777)

    def starve():
        if os.getuid() == 0 and limit == resource.RLIMIT_NPROC:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which Python ignores
            resource.setrlimit(limit, (left, left))

    command = [TTRACE, *words]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        preexec_fn=starve if limit is not None else None,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )


def complaint(name, plain, starved, what):
    """What is wrong with how a command ended; empty where nothing is."""
    if what == "processes" and name not in STARTS_A_PROCESS and starved.returncode != plain.returncode:
        return f"exit code {starved.returncode}, not {plain.returncode}: {starved.stderr.splitlines()[-1:]}"
    if starved.returncode < 0 or starved.returncode == 127:  # a signal, as of the stack; the loader, before `main`
        return ""
    if starved.returncode == plain.returncode:
        return ""
    lines = starved.stderr.splitlines()
    if name == "collect" and starved.returncode > 2:  # the command's own failure
        return ""
    if starved.returncode != 2:
        return f"exit code {starved.returncode}, not {plain.returncode} or 2: {lines[-1:]}"
    if not lines or not any(line.startswith("ttrace: error: ") for line in lines):
        return f"says nothing: {lines[-3:]}"
    if name == "import" and lines[-1].startswith(
        "ttrace: error: "
    ):  # below what Python says, which has not come to ours
        lines = lines[-1:]
    if any("please report" in line or "Traceback" in line or "terminate called" in line for line in lines):
        return f"takes it for its own mistake: {lines[-3:]}"
    return ""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_short_of_something_gives_its_own_verdict_or_none(place, nightly, name):
    words, code = COMMANDS[name]
    plain = run_starved(place, words)
    assert plain.returncode == code, plain.stderr
    wrong, ends = [], {}
    for what, (limit, amounts) in (ALL if nightly else QUICK).items():
        for left in amounts:
            starved = run_starved(place, words, limit, left)
            ends.setdefault(what, []).append(starved.returncode)
            if problem := complaint(name, plain, starved, what):
                wrong.append(f"{what}, {left:,} left: {problem}")
    print(name, ends)
    assert not wrong, "\n".join(wrong)
