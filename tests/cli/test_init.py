"""`ttrace init`: what it writes, `ttrace run` takes."""

import json
import pathlib
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
        ("torchrun --nproc-per-node 4 train.py --tp 4", "torchrun --nproc-per-node 1 train.py --tp 4", "train-4-ranks"),
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
        ("./start {config}", "./start {config}", "candidate"),
    ],
)
def test_the_reference_is_the_command_on_one_process(ttrace, command, reference, name):
    content = written(ttrace, *command.split())
    assert content["reference"]["command"].replace("'", "") == reference
    (candidate,) = content["candidates"]
    assert candidate["name"] == name
    assert candidate["command"].replace("'", "").replace("{{", "{").replace("}}", "}") == command


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
