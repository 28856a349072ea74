"""torchtitan's own `train` of its Llama 3 debug model, on CPU (cpu.py) and on a text and a tokenizer that are made
here, since those of its tests are not in its package. Further arguments are torchtitan's, such as
--parallelism.tensor_parallel_degree 2. All runs begin with one seed checkpoint, as torchtitan's own do that are to be
compared: by itself each rank draws the weights of its shards."""

import contextlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import cpu

CHARACTERS = "abcdefghijklmnopqrstuvwxyz ."
FIXED = {
    "module": "debug",
    "config": "llama3",
    "training.steps": 1,
    "training.seq_len": 64,
    "training.local_batch_size": 2,
    "training.global_batch_size": 8,
    "training.disable_cuda_graphs": None,
    "debug.seed": 1,
    "checkpoint.enable": None,
    "validator.no-enable": None,
}
SEED_CHECKPOINT = Path(__file__).resolve().parents[3] / "build/frameworks/models/torchtitan-llama3"


def write_assets(directory: Path) -> None:
    """A tokenizer of single characters, and some text."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    vocabulary = {token: number for number, token in enumerate(["<bos>", "<eos>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="."))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.add_special_tokens(["<bos>", "<eos>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    special = {"bos_token": "<bos>", "eos_token": "<eos>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(special))
    text = directory / "text"
    text.mkdir()
    # One for each sequence of a step, as long as that with its <bos> and <eos>; rank r of n begins with the r-th part.
    count, size = FIXED["training.global_batch_size"], FIXED["training.seq_len"] - 1
    lines = [
        "".join(CHARACTERS[(row * row + 7 * row * at + at * at) % 28] for at in range(size)) for row in range(count)
    ]
    (text / "text.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))


def make_seed_checkpoint() -> None:
    """By one process, where it is not there. Several ranks may ask at once."""
    if SEED_CHECKPOINT.exists():
        return
    SEED_CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    unfinished = tempfile.mkdtemp(dir=SEED_CHECKPOINT.parent)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", __file__]
    options = ["--checkpoint.create_seed_checkpoint", "--dump_folder", unfinished]
    subprocess.run([*launch, *options], check=True)
    with contextlib.suppress(OSError):  # another rank was first
        os.rename(f"{unfinished}/checkpoint/step-0", SEED_CHECKPOINT)
    shutil.rmtree(unfinished)


def begin_with_hugging_face(checkpoint: Path) -> None:
    """All runs begin with these weights in place of the seed checkpoint's, and compute in fp32 as that program does."""
    begins = {"load_only": None, "initial_load_path": checkpoint, "initial_load_in_hf": None}
    FIXED.update({f"checkpoint.{key}": value for key, value in begins.items()})
    FIXED["training.mixed_precision_param"] = "float32"


def main() -> None:
    os.environ.setdefault("LOCAL_RANK", "0")
    cpu.stand_in()
    cpu.replace_flex_attention()
    begins = {}
    if "--checkpoint.create_seed_checkpoint" not in sys.argv and "checkpoint.initial_load_path" not in FIXED:
        make_seed_checkpoint()
        begins = {"checkpoint.load_only": None, "checkpoint.initial_load_path": SEED_CHECKPOINT}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_assets(directory)
        places = {"hf_assets_path": directory, "dataloader.dataset_path": directory / "text", "dump_folder": directory}
        options = [
            word
            for key, value in {**FIXED, **places, **begins}.items()
            for word in ([f"--{key}"] if value is None else [f"--{key}", str(value)])
        ]
        sys.argv = ["torchtitan.train", *options, *sys.argv[1:]]
        runpy.run_module("torchtitan.train", run_name="__main__")


if __name__ == "__main__":
    main()
