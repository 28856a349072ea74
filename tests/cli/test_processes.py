"""`mpirun -n N ttrace check`: the same bytes of report as from one process, and one clear error where the processes
cannot work together."""

import json
import os
import shutil
import subprocess

import numpy
import pytest

from traces import PROGRAM, Tensor, bfloat16, record_run

VERSION = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
pytestmark = pytest.mark.skipif("MPI: no" in VERSION, reason="built without MPI")

ANNOTATIONS = """\
layers.*.mlp:
  output: {tp_dim: 1}
layers.*.mlp.weight:
  tp_dim: 0
"""
LAYERS = 12
NORMS = [f"norms.{i}.weight" for i in range(LAYERS)]
LR = 0.5
STEP = {
    "iteration": 0, "chunk": 0, "parameters": 0, "optimizer": "torch.optim.sgd.SGD", "step": 1, "calls": 1,
    "clip_factor": 1,
    "options": {"lr": LR, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": 0, "maximize": 0},
}  # fmt: skip
PROVENANCE = json.dumps({"optimizer_steps": {"parameters": [NORMS], "steps": [STEP]}})
CHECK = ("check", "--reference", "reference", "-a", "a.yaml", "--candidate")


def model(noise=0.0, nan_at=None, wrong_step=None):
    """Values that are exact in bf16, and their relatives."""
    values, errors = numpy.random.default_rng(1), numpy.random.default_rng(2)
    tensors = []
    for i in range(LAYERS):
        output = values.integers(-7, 8, (16, 32)).astype("float32")
        weight = values.integers(-7, 8, (32, 8)).astype("float32")
        wrong = (output * (1 + noise * errors.standard_normal(output.shape))).astype("float32")
        if nan_at == i:
            wrong[3, 5] = numpy.nan
        tensors.append(Tensor(f"layers.{i}.mlp", wrong))
        tensors.append(bfloat16(Tensor(f"layers.{i}.mlp.weight", weight, kind="main_grad", microbatch=-1)))
    for name in NORMS:
        gradient = values.integers(1, 8, 24).astype("float32")
        delta = -LR * gradient * (1.5 if name == wrong_step else 1)
        for kind, of_kind in [("param", gradient), ("main_grad", gradient), ("param_delta", delta)]:
            tensors.append(Tensor(name, of_kind.astype("float32"), kind=kind, microbatch=-1))
    return [*tensors, Tensor("loss", numpy.array(2.5, "float32"), kind="scalar")]


def shards(tensors, other_copies=()):
    """Ranks of tp=2,cp=2; the second half holds `other_copies` of the tensors of these names."""

    def part(tensor, rank):
        if tensor.name == "loss" or tensor.name in NORMS:
            return tensor
        values = numpy.split(tensor.values, 2, axis=0 if tensor.name.endswith("weight") else 1)[rank % 2].copy()
        if rank >= 2 and tensor.name in other_copies:
            values.flat[7] += 1
        return tensor.with_values(values)

    return [[part(tensor, rank) for tensor in tensors] for rank in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    run = {"axes": "tp=2,cp=2", "provenance": PROVENANCE}
    record_run(folder / "reference", [model()], provenance=PROVENANCE)
    record_run(folder / "right", shards(model()), **run)
    wrong = shards(
        model(noise=1e-4, nan_at=7, wrong_step=NORMS[4]), other_copies={"layers.2.mlp.weight", "layers.9.mlp"}
    )
    record_run(folder / "wrong", wrong, **run)
    (folder / "a.yaml").write_text(ANNOTATIONS)
    return folder


def mpirun(processes, *words, cwd, **environment):
    """Runs a command as several processes; what mpirun itself says of exit codes is left out of stderr."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(processes), *map(str, words)]
    result = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    result.stderr = "".join(line for line in result.stderr.splitlines(True) if line.startswith("ttrace: "))
    return result


def by_rank(path, *, first, others):
    """A script that runs `first` in process 0 and `others` in the rest."""
    path.write_text(f'#!/bin/sh\nif [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then {first}; else {others}; fi\n')
    path.chmod(0o755)
    return path


def reports(folder, tmp_path, candidate, *launcher, threads):
    """The bytes of all reports of one check, with its exit code."""
    files = {name: tmp_path / name for name in ("json", "junit", "csv", "html", "sarif")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    words = [*launcher, str(PROGRAM), *CHECK, candidate, "--all", "--threads", str(threads), *options]
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout, {name: path.read_bytes() for name, path in files.items()}


@pytest.mark.parametrize("candidate, code", [("right", 0), ("wrong", 1)])
def test_reports_are_the_same_bytes_for_any_number_of_processes_and_threads(folder, tmp_path, candidate, code):
    alone = reports(folder, tmp_path, candidate, threads=1)
    assert alone[0] == code and "layers." in alone[2]["csv"].decode()
    assert f"optimizer steps checked: {LAYERS} of {LAYERS} parameters" in alone[1]
    assert ("step-differs" in alone[1]) == (candidate == "wrong")
    for processes, threads in [(1, 2), (2, 2), (3, 1), (4, 2)]:
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(processes)]
        assert reports(folder, tmp_path, candidate, *launcher, threads=threads) == alone, (processes, threads)


def test_tolerances_are_the_same_bytes(folder, tmp_path):
    for name, seed in [("p1", 1), ("p2", 2), ("p3", 3), ("again", None)]:
        tensors = model(noise=1e-6 * (seed or 0))
        record_run(tmp_path / name, [tensors], provenance="{}" if seed is None else f'{{"perturb_seed": {seed}}}')
    record_run(tmp_path / "reference", [model()])
    words = [
        "estimate-tolerance",
        "--reference",
        "reference",
        "--perturbed",
        "p1",
        "p2",
        "p3",
        "--rerun",
        "again",
        "-o",
    ]
    alone = subprocess.run([PROGRAM, *words, "1.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
    several = mpirun(3, PROGRAM, *words, "3.yaml", cwd=tmp_path)
    assert several.returncode == 0 and several.stdout == alone.stdout.replace("1.yaml", "3.yaml")
    assert (tmp_path / "3.yaml").read_bytes() == (tmp_path / "1.yaml").read_bytes()
    refused = mpirun(2, PROGRAM, *words, "2.yaml", "--", "true", cwd=tmp_path)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert "expected runs that are collected already (--perturbed)" in refused.stderr


def test_damage_is_found_by_whoever_reads_it(folder, tmp_path):
    shutil.copytree(folder / "right", tmp_path / "right")
    for name in ("reference", "a.yaml"):
        (tmp_path / name).symlink_to(folder / name)
    path = tmp_path / "right" / "rank-00003.h5"
    data = bytearray(path.read_bytes())
    data[4096 + 4] ^= 1
    path.write_bytes(data)
    for processes in (1, 3):
        result = mpirun(processes, PROGRAM, *CHECK, "right", cwd=tmp_path)
        assert result.returncode == 2 and result.stdout == ""
        assert result.stderr.count("\n") == 1 and "its bytes are not those that were recorded" in result.stderr


def test_a_file_that_one_process_does_not_see_is_one_error(folder, tmp_path):
    """Paths are relative, and the other processes work in another directory."""
    shutil.copytree(folder / "right", tmp_path / "right")
    for name in ("reference", "a.yaml"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "right" / "rank-00002.h5").unlink()
    check = " ".join([str(PROGRAM), *CHECK, "right"])
    script = by_rank(tmp_path / "run", first=f"cd {folder}; exec {check}", others=f"exec {check}")
    result = mpirun(4, script, cwd=tmp_path)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert "right/rank-00002.h5: No such file or directory" in result.stderr
    assert "where one of the processes runs" in result.stderr


def test_another_file_under_the_same_path_is_one_error(folder, tmp_path):
    for name in ("reference", "right"):
        shutil.copytree(folder / name, tmp_path / name, copy_function=shutil.copy)  # with other times
    (tmp_path / "a.yaml").symlink_to(folder / "a.yaml")
    check = " ".join([str(PROGRAM), *CHECK, "right"])
    script = by_rank(tmp_path / "run", first=f"cd {folder}; exec {check}", others=f"exec {check}")
    result = mpirun(3, script, cwd=tmp_path)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "expected one file that all see" in result.stderr, result.stderr


def test_another_build_or_command_is_one_error(folder, tmp_path):
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    for name in ("lib", "share"):
        (other / name).symlink_to(PROGRAM.parent.parent / name)
    shutil.copy(PROGRAM, other / "bin" / "ttrace")
    with open(other / "bin" / "ttrace", "ab") as file:
        file.write(b"\0")
    check = " ".join([*CHECK, "right"])
    script = by_rank(
        tmp_path / "build", first=f"exec {PROGRAM} {check}", others=f"exec {other / 'bin' / 'ttrace'} {check}"
    )
    result = mpirun(3, script, cwd=folder)
    assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1, result.stderr
    assert "process 1 on" in result.stderr and result.stderr.endswith("expected one program\n")
    script = by_rank(tmp_path / "command", first=f"exec {PROGRAM} {check}", others=f"exec {PROGRAM} {check} --strict")
    result = mpirun(2, script, cwd=folder)
    assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.endswith("expected one command for all processes\n")


@pytest.mark.parametrize("words", ["exit 3", "kill -KILL $$"])
def test_a_process_that_dies_ends_all(folder, tmp_path, words):
    check = " ".join([str(PROGRAM), *CHECK, "right"])
    script = by_rank(tmp_path / "run", first=f"exec {check}", others=words)
    result = mpirun(2, script, cwd=folder)
    assert result.returncode not in (0, 1) and result.stdout == ""


def test_misuse_is_one_error(folder):
    for words in (["check", "--nonsense"], ["check", "--reference", "nowhere", "--candidate", "right"]):
        result = mpirun(3, PROGRAM, *words, cwd=folder)
        assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1, result.stderr
    result = mpirun(3, PROGRAM, "--version", cwd=folder)
    assert result.returncode == 0 and result.stdout.splitlines() == VERSION.splitlines()


def test_other_commands_refuse_several_processes(folder):
    result = mpirun(2, PROGRAM, "inspect", "reference", cwd=folder)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("ttrace: error: ttrace inspect works in one process, and was started as 2;")
    assert result.stderr.count("\n") == 1
    result = mpirun(2, PROGRAM, "inspect", "reference", cwd=folder, TTRACE_ALONE="1")
    assert result.returncode == 0 and result.stdout.count("layers.0.mlp.weight") == 2


def test_collect_is_what_it_was(tmp_path):
    """The ranks of a training job may each be started by it, or a launcher by one of it."""
    two = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "sh", "-c"]
    below = f'exec {PROGRAM} collect -o "one$OMPI_COMM_WORLD_RANK" -- touch "ran$OMPI_COMM_WORLD_RANK"'
    for words in ([*two, below], [PROGRAM, "collect", "-o", "all", "--", *two, 'touch "below$OMPI_COMM_WORLD_RANK"']):
        result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert result.returncode == 2 and "MPI" not in result.stderr, result.stderr  # nothing recorded: no PyTorch
    names = {path.name for path in tmp_path.iterdir()}
    assert {"ran0", "ran1", "below0", "below1"} <= names
