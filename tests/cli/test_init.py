"""`ttrace init`: what it writes, `ttrace run` takes."""

import json
import pathlib
import shlex
import subprocess
import sys

import pytest
import yaml
from program import Program

TRAIN = pathlib.Path(__file__).parent / "programs" / "train.py"


@pytest.fixture
def ttrace(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return Program(tmp_path)


def written(ttrace, *command):
    ttrace("init", "--", *command, code=0)
    path = ttrace.directory / "ttrace.yaml"
    content = yaml.safe_load(path.read_text())
    path.unlink()
    return content


@pytest.mark.parametrize(
    ("command", "reference", "name"),
    [
        ("torchrun --nproc-per-node 4 train.py --tp 4", "torchrun --nproc-per-node 1 train.py --tp 1", "train-4-ranks"),
        (
            "torchrun --nproc-per-node 4 train.py model.tensor_parallel_size=2 --pp-size=2 --top 3",
            "torchrun --nproc-per-node 1 train.py model.tensor_parallel_size=1 --pp-size=1 --top 3",
            "train-4-ranks",
        ),
        ("torchrun --nproc_per_node=8 a/pre.py", "torchrun --nproc_per_node=1 a/pre.py", "pre-8-ranks"),
        (
            "python -m torch.distributed.run --nproc-per-node 2 train.py",
            "python -m torch.distributed.run --nproc-per-node 1 train.py",
            "train-2-ranks",
        ),
        ("accelerate launch --num_processes 2 t.py", "accelerate launch --num_processes 1 t.py", "t-2-ranks"),
        ("deepspeed --num_gpus=2 t.py --num_gpus 7", "deepspeed --num_gpus=1 t.py --num_gpus 7", "t-2-ranks"),
        (
            "torchrun --nproc-per-node 2 pretrain_gpt.py --tensor-model-parallel-size 2 --sequence-parallel",
            "torchrun --nproc-per-node 1 pretrain_gpt.py --tensor-model-parallel-size 1",
            "pretrain_gpt-2-ranks",
        ),
        ("python train.py -n 4", "python train.py -n 4", "train"),
        ("python train.py -n4", "python train.py -n4", "train"),
        ("srun -n4 python train.py -n4 --tp 2", "srun -n 1 python train.py -n4 --tp 1", "train-4-ranks"),
        ("srun --ntasks=8 python train.py", "srun --ntasks=1 python train.py", "train-8-ranks"),
        ("mpiexec -n 2 python train.py", "mpiexec -n 1 python train.py", "train-2-ranks"),
        (
            "torchrun --nproc-per-node 2 train.py +model.tp=2 ++lr=2",
            "torchrun --nproc-per-node 1 train.py +model.tp=1 ++lr=2",
            "train-2-ranks",
        ),
        ("./start {config}", "./start {config}", "candidate"),
    ],
)
def test_the_reference_is_the_command_on_one_process(ttrace, command, reference, name):
    content = written(ttrace, *command.split())
    assert content["reference"]["command"].replace("'", "") == reference
    (candidate,) = content["candidates"]
    assert candidate["name"] == name
    assert candidate["command"].replace("'", "").replace("{{", "{").replace("}}", "}") == command


@pytest.mark.parametrize(
    ("command", "axes"),
    [
        ("torchrun --nproc-per-node 2 t.py --tp 2", "tp=2"),
        ("torchrun --nproc-per-node 4 t.py --tp 4 --lr 2", "tp=4"),
        ("torchrun --nproc-per-node 4 t.py --dp=4", "dp=4"),
        ("torchrun --nproc-per-node 4 t.py --tp 2", None),  # dp is the rest: which of them is faster?
        ("torchrun --nproc-per-node 4 t.py --tp 3", None),
        ("torchrun --nproc-per-node 4 t.py", None),
        ("torchrun --nproc-per-node 2 t.py --ep 2", None),  # experts have a factoring of their own
    ],
)
def test_an_axis_that_the_arguments_say_is_the_candidates(ttrace, command, axes):
    (ttrace.directory / "t.py").write_text("import sys\n")
    (candidate,) = written(ttrace, *command.split())["candidates"]
    assert candidate.get("axes") == axes


def test_where_the_arguments_leave_the_order_open_the_line_to_write_is_a_comment(ttrace):
    ttrace("init", "--", *["torchrun", "--nproc-per-node", "8", "t.py", "--pp", "2", "--tp", "2"], code=0)
    assert "    # axes: tp=2,dp=2,pp=2\n" in (ttrace.directory / "ttrace.yaml").read_text()


def test_init_says_which_of_its_lines_are_to_be_decided(ttrace):
    (ttrace.directory / "t.py").write_text("import sys\n")
    (ttrace.directory / "conf").mkdir()
    (ttrace.directory / "conf" / "s.yaml").write_text("model:\n  layers: 2\n  tp: 2  # ranks\n  pp_size: 1\n")
    command = ["torchrun", "--nproc-per-node", "4", "t.py", "--config", "conf/s.yaml"]
    stdout, _ = ttrace("init", "--", *command, code=0)
    lines = (ttrace.directory / "ttrace.yaml").read_text().splitlines()
    _, size, axes = stdout.splitlines()
    assert size.endswith(": conf/s.yaml:3: tp: 2: give the reference a copy of that file that says 1 there")
    assert lines[int(size.split(":")[1]) - 1].startswith("  command: ")
    assert axes.endswith(": take the # away where the ranks are arranged so; else say how they are")
    assert lines[int(axes.split(":")[1]) - 1].startswith("    # axes: ")
    assert "# conf/s.yaml:3: tp: 2: give the command below a copy of the file that says 1 there." in lines


def test_what_frameworks_say_themselves_is_not_said_for_them(ttrace):
    (ttrace.directory / "t.py").write_text("from megatron.core import parallel_state\n")
    command = "torchrun --nproc-per-node 2 t.py --tensor-model-parallel-size 2"
    (candidate,) = written(ttrace, *command.split())["candidates"]
    assert "axes" not in candidate


@pytest.mark.parametrize("in_git", [False, True])
def test_inputs_are_the_script_and_what_it_imports_of_its_own_project(ttrace, in_git):
    if in_git:
        git = "git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
        subprocess.run(git, shell=True, cwd=ttrace.directory, check=True)
    files = {
        "train.py": "import os, helpers as h\nfrom model.net import Net\nimport torch\n",
        "helpers.py": "def f():\n    import deep\n",
        "deep.py": "",
        "other.py": "",
        "model/__init__.py": "",
        "model/net.py": "from . import layers\nimport lib\n",
        "src/lib/core.py": "",
        "conf/small.yaml": "",
        "hydra.yaml": "",
        "README.md": "",
    }
    for name, text in files.items():
        (ttrace.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (ttrace.directory / name).write_text(text)
    inputs = ["conf", "deep.py", "helpers.py", "hydra.yaml", "model", "src/lib", "train.py"]
    launcher = ["torchrun", "--nproc-per-node", "2"]
    content = written(ttrace, *launcher, "train.py", "--config=conf/small.yaml", "--data", "nowhere")
    assert content["reference"]["inputs"] == content["candidates"][0]["inputs"] == inputs
    content = written(ttrace, *launcher, "-m", "model.net", "--tp", "2")
    assert content["reference"]["inputs"] == ["model", "src/lib"]
    assert content["reference"]["command"] == "torchrun --nproc-per-node 1 -m model.net --tp 1"


def test_what_the_script_imports_says_which_annotations_fit(ttrace):
    script = ttrace.directory / "t.py"
    for module, preset in (
        ("megatron.core", "megatron_gpt"),
        ("torchtitan", "torch_fsdp2_tp"),
        ("os", "annotations.yaml"),
    ):
        script.write_text(f"import sys\nfrom {module} import thing\n")
        ttrace("init", "-o", "out.yaml", "--", "python", "t.py", code=0)
        text = (ttrace.directory / "out.yaml").read_text()
        assert f"# annotations: {preset}" in text
        (ttrace.directory / "out.yaml").unlink()


def test_a_file_that_is_there_is_never_replaced(ttrace):
    (ttrace.directory / "ttrace.yaml").write_text("mine")
    _, stderr = ttrace("init", "--", "python", "train.py", code=2)
    assert stderr == "ttrace: error: ttrace.yaml: is there already; expected a new file (-o FILE)\n"
    assert (ttrace.directory / "ttrace.yaml").read_text() == "mine"


def test_run_takes_what_init_wrote(ttrace):
    ttrace("init", "--", sys.executable, TRAIN, code=0)
    plan, _ = ttrace("run", "--plan", code=0)
    assert plan.startswith("reference: missing: ") and "\ntrain: missing: " in plan
    ttrace("run", "--json", "report.json", code=0)
    assert json.loads((ttrace.directory / "report.json").read_text())["verdict"] == "same"


def test_the_number_of_ranks_is_that_of_accelerates_configuration(ttrace):
    (ttrace.directory / "cluster.yaml").write_text("num_machines: 1\nnum_processes: 2  # of this machine\n")
    for option in (["--config_file", "cluster.yaml"], ["--config_file=cluster.yaml"]):
        content = written(ttrace, "accelerate", "launch", *option, "t.py")
        one = shlex.join(["accelerate", "launch", "--num_processes", "1", *option, "t.py"])
        assert content["reference"]["command"].replace("'", "") == one
        assert content["candidates"][0]["name"] == "t-2-ranks"
    content = written(ttrace, "accelerate", "launch", "--config_file", "cluster.yaml", "--num_processes", "4", "t.py")
    assert content["candidates"][0]["name"] == "t-4-ranks"


def test_sizes_of_the_configuration_that_hydra_takes_for_a_group_are_named(ttrace):
    group = ttrace.directory / "conf" / "parallel"
    group.mkdir(parents=True)
    (group / "two.yaml").write_text("tp: 2\n")
    stdout, _ = ttrace("init", "--", "torchrun", "--nproc-per-node", "2", "t.py", "parallel=two", code=0)
    assert "conf/parallel/two.yaml:1: tp: 2: give the reference a copy of that file that says 1 there\n" in stdout


@pytest.fixture
def mpiexec(ttrace):
    """A launcher: mpiexec -n N COMMAND runs the command with --ranks N behind it."""
    launcher = ttrace.directory / "mpiexec"
    launcher.write_text('#!/bin/sh\nn=$2; shift 2; exec "$@" --ranks "$n"\n')
    launcher.chmod(0o755)
    return launcher


def test_a_try_says_what_reference_and_candidate_recorded(ttrace, mpiexec):
    stdout, stderr = ttrace("init", "--try", "--", mpiexec, "-n", "2", sys.executable, TRAIN, code=0)
    lines = (ttrace.directory / "ttrace.yaml").read_text().splitlines()
    _, reference, candidate = (line.split(":", 2) for line in stdout.splitlines())
    assert reference[2].startswith(" the reference: recorded 1 rank and ")
    assert candidate[2].startswith(" the candidate: recorded 2 ranks and ")
    assert lines[int(reference[1]) - 1].startswith("  command: ")
    assert lines[int(candidate[1]) - 1].startswith("    command: ")
    assert "a line of the training program" not in stdout + stderr
    assert not (ttrace.directory / ".ttrace").exists()


def test_a_try_that_fails_says_which_line_to_edit_and_what_the_program_said(ttrace):
    stdout, _ = ttrace("init", "--try", "--", sys.executable, TRAIN, "--fail", "3", code=2)
    _, reference, candidate = stdout.splitlines()
    lines = (ttrace.directory / "ttrace.yaml").read_text().splitlines()
    assert lines[int(reference.split(":")[1]) - 1].startswith("  command: ")
    assert reference.endswith(
        ": the reference: it exited with code 3: `a line of the training program`; "
        "expected the program on one process: take from it what makes it parallel"
    )
    assert candidate.endswith("expected a command that trains")


def test_a_try_names_the_error_and_not_what_the_launcher_makes_of_it(ttrace):
    script = ttrace.directory / "t.py"
    script.write_text("import sys\nprint('ValueError: tp is 2')\nprint('Error: a child failed')\nsys.exit(1)\n")
    stdout, _ = ttrace("init", "--try", "--", sys.executable, "t.py", code=2)
    assert ": the reference: it exited with code 1: `ValueError: tp is 2`; expected" in stdout


def test_a_try_says_of_a_command_that_is_not_there_that_it_is_not(ttrace):
    stdout, _ = ttrace("init", "--try", "--", "no-such-launcher", "t.py", code=2)
    assert ": the reference: no-such-launcher: No such file or directory; expected" in stdout


def test_a_try_of_a_reference_that_is_parallel_still_says_so(ttrace, mpiexec):
    mpiexec.write_text('#!/bin/sh\nshift 2; exec "$@" --ranks 2\n')  # whatever it is told
    stdout, _ = ttrace("init", "--try", "--", mpiexec, "-n", "2", sys.executable, TRAIN, code=2)
    assert ": the reference: it ran on 2 ranks; expected 1\n" in stdout


def test_a_first_run_that_fails_names_the_configuration_that_still_says_sizes(ttrace):
    (ttrace.directory / "small.yaml").write_text("tp: 2\n")
    ttrace("init", "--", sys.executable, TRAIN, "--fail=3", "--wait-while", "small.yaml", code=0)
    _, stderr = ttrace("run", code=2)
    assert "of ttrace.yaml: where it is parallel, take from it what makes it so, such as small.yaml:1: tp: 2;" in stderr
