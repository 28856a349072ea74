"""A Llama or a Mixtral as Hugging Face stores it, of the size that another framework's program here trains."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
DIRECTORY = ROOT / "build/frameworks/models"

# The sizes of ../megatron/train.py, and of torchtitan's Llama 3 debug model.
MEGATRON = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
CONFIGURATIONS = {
    "megatron": {"model_type": "llama", "num_hidden_layers": 4, **MEGATRON},
    "megatron-moe": {
        "model_type": "mixtral",
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        **MEGATRON,
    },
    "torchtitan": {
        "model_type": "llama",
        "vocab_size": 2048,
        "hidden_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "intermediate_size": 768,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
}


def checkpoint_of(name: str) -> Path:
    """The directory of the saved model, made where it is not there by a Python that has transformers."""
    path = DIRECTORY / f"port-{name}"
    if not path.exists():
        subprocess.run([ROOT / ".venv-transformers/bin/python", __file__, name], check=True)
    return path


def make(name: str) -> Path:
    """The same, where transformers is installed. Several processes may ask at once."""
    from transformers import AutoConfig, AutoModelForCausalLM

    path = DIRECTORY / f"port-{name}"
    if path.exists():
        return path
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIGURATIONS[name]), dtype=torch.float32)
    with torch.no_grad():  # norms as after some training: not all one
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    unfinished = tempfile.mkdtemp(dir=DIRECTORY)
    model.save_pretrained(unfinished)
    try:
        os.rename(unfinished, path)
    except OSError:  # another process was first
        shutil.rmtree(unfinished)
    return path


if __name__ == "__main__":
    make(sys.argv[1])
