"""A configuration for torchtitan's `--module debug --config llama3`: its Llama 3 debug model without activation
checkpointing, on DTensor."""

from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.trainer import Trainer


def llama3() -> Trainer.Config:
    config = llama3_debugmodel()
    config.activation_checkpoint = None
    config.parallelism.spmd_backend = "partial_dtensor"
    return config
