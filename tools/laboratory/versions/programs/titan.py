"""torchtitan's own training of its Llama 3 debug model, by the program of tools/frameworks.

package: torchtitan
parallel: FSDP2, 2 ranks
mistake: the loss of rank 1 is 1 % too large
shows: loss scalar, *loss* output, *lm_head* grad_output, output grad_output
"""

import importlib.util
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "torchtitan"))

import cpu
import train

RANKS, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
# What options were called before a model's configuration was a module of Python; "": there were none.
BEFORE = {
    "--module": "--model.name",
    "--config": "--model.flavor",
    "--hf_assets_path": "--model.hf_assets_path",
    "--dataloader.dataset_path": "--training.dataset_path",
    "--dump_folder": "--job.dump_folder",
    "--training.disable_cuda_graphs": "",
    "--validator.no-enable": "",
}


def follow_older_options() -> None:
    train.FIXED |= {"module": "llama3", "config": "debugmodel", "activation_checkpoint.mode": "none"}
    train.SEED_CHECKPOINT = train.SEED_CHECKPOINT.with_name("torchtitan-llama3-older")
    train.__file__ = __file__  # which makes that checkpoint
    cpu.replace_flex_attention = lambda: None  # its model has none

    def run_module(*args, **kwargs):
        sys.argv = [word for word in (BEFORE.get(word, word) for word in sys.argv) if word]
        runpy.run_module(*args, **kwargs)

    train.runpy = SimpleNamespace(run_module=run_module)


torch.set_num_threads(1)
package = Path(importlib.util.find_spec("torchtitan").origin).parent
if not (package / "models" / "llama3" / "config_registry.py").exists():
    follow_older_options()
cross_entropy = functional.cross_entropy
if os.environ.get("MISTAKE") and RANK == 1:
    functional.cross_entropy = lambda *args, **kwargs: cross_entropy(*args, **kwargs) * 1.01
if RANKS > 1:
    sys.argv += ["--parallelism.data_parallel_shard_degree", str(RANKS)]
else:  # what torchrun says
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}.items():
        os.environ.setdefault(name, value)
train.main()
