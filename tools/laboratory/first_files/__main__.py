"""First files: what `ttrace init` makes of the commands that people type, and whether the first `ttrace run` takes it.

python tools/laboratory/first_files [--run] [PATTERN]   prints a table; with --run the whole first run, too

Each command is typed in a new folder, beside a trainer that each launcher starts as its users do. `srun` is a stand-in
of this script, which starts the tasks with Slurm's variables; Slurm itself needs a cluster.
"""

import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TTRACE = os.environ.get("TTRACE_PROGRAM", str(ROOT / "build" / "bin" / "ttrace"))

ARGPARSE = """import argparse
from trainer import train

p = argparse.ArgumentParser()
{options}
a = p.parse_args()
train({given})
"""
YAML = """import argparse
import yaml
from trainer import train

p = argparse.ArgumentParser()
p.add_argument({option})
a = p.parse_args()
c = yaml.safe_load(open(a.config))
train({given})
"""
HYDRA = """import hydra
from trainer import train


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(c):
    train({given})


main()
"""
ACCELERATE = """from accelerate import Accelerator
from trainer import train

accelerator = Accelerator(cpu=True)
train(wrap=lambda model, optimizer: accelerator.prepare(model, optimizer))
"""
PLAIN = "from trainer import train\n\ntrain()\n"
TP = ARGPARSE.format(options='p.add_argument("--tp", type=int, default=1)', given="a.tp")
ACCELERATE_FILE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nmixed_precision: 'no'\n"
    "num_machines: 1\nnum_processes: 2\nuse_cpu: true\n"
)

# kind -> command typed, and the files beside trainer.py
COMMANDS = {
    "argparse": [
        ("torchrun --nproc-per-node 2 train.py --tp 2", {"train.py": TP}),
        (
            "torchrun --nproc-per-node 2 train.py --tensor-model-parallel-size=2 --batch 4",
            {
                "train.py": ARGPARSE.format(
                    options='p.add_argument("--tensor-model-parallel-size", type=int, default=1)\n'
                    'p.add_argument("--batch", type=int, default=8)',
                    given="a.tensor_model_parallel_size, batch=a.batch",
                )
            },
        ),
        (
            "torchrun --nproc-per-node 2 train.py --world 2",
            {
                "train.py": ARGPARSE.format(options='p.add_argument("--world", type=int, default=1)', given="")
                + "import trainer\nassert a.world == trainer.RANKS, f'--world is {a.world}, not {trainer.RANKS}'\n"
            },
        ),
    ],
    "torchrun": [
        ("torchrun --standalone --nproc-per-node 2 train.py", {"train.py": PLAIN}),
        ("python -m torch.distributed.run --nproc_per_node=2 train.py --tp 2", {"train.py": TP}),
        ("torchrun --nnodes 1 --nproc-per-node=2 -m pkg.train --tp=2", {"pkg/__init__.py": "", "pkg/train.py": TP}),
    ],
    "accelerate": [
        ("accelerate launch --cpu --num_processes 2 train.py", {"train.py": ACCELERATE}),
        (
            "accelerate launch --cpu --num_machines=1 --num_processes=2 --mixed_precision=no train.py",
            {"train.py": ACCELERATE},
        ),
        (
            "accelerate launch --config_file cluster.yaml train.py",
            {"train.py": ACCELERATE, "cluster.yaml": ACCELERATE_FILE},
        ),
    ],
    "mpirun": [
        ("mpirun -n 2 python train.py", {"train.py": PLAIN}),
        ("mpirun --oversubscribe -np 2 python train.py --tp 2", {"train.py": TP}),
        ("mpiexec -n 2 python -m pkg.train --tp=2", {"pkg/__init__.py": "", "pkg/train.py": TP}),
    ],
    "srun": [
        ("srun -n2 python train.py", {"train.py": PLAIN}),
        ("srun --ntasks=2 python train.py --tp 2", {"train.py": TP}),
        ("srun --ntasks 2 --cpus-per-task 1 python train.py --tp 2", {"train.py": TP}),
    ],
    "hydra": [
        (
            "torchrun --nproc-per-node 2 train.py parallel.tp=2",
            {"train.py": HYDRA.format(given="c.parallel.tp"), "conf/config.yaml": "parallel:\n  tp: 1\n"},
        ),
        (
            "torchrun --nproc-per-node 2 train.py +tp_size=2",
            {"train.py": HYDRA.format(given="c.get('tp_size', 1)"), "conf/config.yaml": "lr: 0.1\n"},
        ),
        (
            "torchrun --nproc-per-node 2 train.py parallel=two",
            {
                "train.py": HYDRA.format(given="c.parallel.tp"),
                "conf/config.yaml": "defaults:\n  - parallel: one\n",
                "conf/parallel/one.yaml": "tp: 1\n",
                "conf/parallel/two.yaml": "tp: 2\n",
            },
        ),
    ],
    "YAML": [
        (
            "torchrun --nproc-per-node 2 train.py --config conf/small.yaml",
            {"train.py": YAML.format(option='"--config"', given="c['tp']"), "conf/small.yaml": "lr: 0.1\ntp: 2\n"},
        ),
        (
            "torchrun --nproc-per-node 2 train.py small.yaml",
            {"train.py": YAML.format(option='"config"', given="c['model']['tp']"), "small.yaml": "model:\n  tp: 2\n"},
        ),
        (
            "torchrun --nproc-per-node 2 train.py --config=small.yaml",
            {"train.py": YAML.format(option='"--config"', given=""), "small.yaml": "steps: 2\n"},
        ),
    ],
}

SRUN = """#!/usr/bin/env python3
import os, subprocess, sys
words, ranks = sys.argv[1:], 1
while words and words[0].startswith("-"):
    word = words.pop(0)
    name, _, value = word.partition("=")
    if word.startswith("-n") and word[2:].isdigit():
        value, name = word[2:], "-n"
    value = value or words.pop(0)
    if name in ("-n", "--ntasks"):
        ranks = int(value)
tasks = [dict(os.environ, SLURM_PROCID=str(i), SLURM_NTASKS=str(ranks)) for i in range(ranks)]
tasks = [subprocess.Popen(words, env=task) for task in tasks]
sys.exit(max(abs(task.wait()) for task in tasks))
"""


def surroundings(folder):
    """The environment of the commands: srun, and Open MPI's permission to run as root, on a machine of two cores."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "srun").write_text(SRUN)
    (programs / "srun").chmod(0o755)
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    mpi = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    return {**os.environ, **mpi, "PATH": ":".join(path), "OMP_NUM_THREADS": "1", "MASTER_PORT": "29731"}


def typed(command, files, whole_run):
    """What init said, and the verdict of the first run, or None."""
    folder = Path(tempfile.mkdtemp(prefix="first-"))
    try:
        project = folder / "project"
        project.mkdir()
        shutil.copy(HERE / "trainer.py", project)
        for name, text in files.items():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        options = {"cwd": project, "env": surroundings(folder), "capture_output": True, "text": True}
        tried = subprocess.run([TTRACE, "init", "--try", "--", *command.split()], **options)
        said = [line for line in tried.stdout.splitlines() if line.startswith("ttrace.yaml:")][1:]
        if not tried.stdout:
            said = [tried.stderr.strip()]
        verdict = None
        if whole_run and tried.returncode == 0:
            run = subprocess.run([TTRACE, "run"], **options)
            verdict = {0: "same", 1: "different"}.get(
                run.returncode, "could not look: " + " ".join(run.stdout.split())[:400]
            )
        return tried.returncode, said, verdict
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="*", help="of a kind")
    parser.add_argument("--run", action="store_true", help="make the whole first run, too")
    options = parser.parse_args()
    print("| kind | typed | init --try says | first run |\n| --- | --- | --- | --- |", flush=True)
    for kind, commands in COMMANDS.items():
        if not fnmatch.fnmatch(kind, options.pattern):
            continue
        for command, files in commands:
            code, said, verdict = typed(command, files, options.run)
            text = "<br>".join(line.replace("|", "\\|") for line in said)
            print(
                f"| {kind} | `{command}` | {'' if code == 0 else '**to edit** '}{text} | {verdict or '-'} |", flush=True
            )


if __name__ == "__main__":
    main()
