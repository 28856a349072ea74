"""What surrounds the computation of this process, and may be why two runs of one program differ: versions, settings of
PyTorch, variables of the environment that change what is computed. Texts, by a name for people."""

import os
import re
import sys
from typing import Any

import torch

_LIBRARIES = (
    "numpy",
    "triton",
    "transformers",
    "accelerate",
    "deepspeed",
    "megatron.core",
    "transformer_engine",
    "flash_attn",
    "apex",
    "lightning",
    "pytorch_lightning",
    "peft",
    "trl",
    "torchtitan",
    "bitsandbytes",
    "torchao",
)
# By name, since others may hold secrets.
_VARIABLES = re.compile(
    r"CUBLAS_WORKSPACE_CONFIG|NVIDIA_TF32_OVERRIDE|CUDA_DEVICE_MAX_CONNECTIONS|PYTHONHASHSEED|XLA_FLAGS"
    r"|NCCL_(ALGO|PROTO|NVLS_ENABLE|DETERMINISTIC)|NVTE_[A-Z0-9_]+|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|TORCHDYNAMO_DISABLE"
    r"|TORCH_COMPILE_DISABLE|PYTORCH_JIT|DNNL_DEFAULT_FPMATH_MODE|ONEDNN_DEFAULT_FPMATH_MODE|MKL_CBWR"
    r"|ATEN_CPU_CAPABILITY|FLASH_ATTENTION_DETERMINISTIC|FLASH_ATTENTION_[A-Z0-9_]+|PYTORCH_TUNABLEOP_ENABLED"
    r"|TORCH_BLAS_PREFER_[A-Z0-9_]+"
)
_MOST_LETTERS = 80
_LARGEST_SEED = 2**32  # that people set, and NumPy takes; one that PyTorch draws has 64 bits


def surroundings(device: str, autocast: torch.dtype | None) -> dict[str, str]:
    """`device` that the model computes on; `autocast` where its dtype is another than the parameters'."""
    facts = _versions() | _settings(device) | {"autocast": "off" if autocast is None else str(autocast)}
    facts |= {name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name)}
    return {name: text.encode("utf-8", "backslashreplace").decode()[:_MOST_LETTERS] for name, text in facts.items()}


def _versions() -> dict[str, str]:
    versions = {"Python": ".".join(map(str, sys.version_info[:3])), "torch": str(torch.__version__)}
    for library in _LIBRARIES:
        version = getattr(sys.modules.get(library), "__version__", None)
        if isinstance(version, str):
            versions[library] = version
    return versions


def _settings(device: str) -> dict[str, str]:
    """Those that one of PyTorch's versions lacks are absent."""
    ask = {
        "device": lambda: torch.cuda.get_device_name() if device == "cuda" else device,
        "CUDA": lambda: torch.version.cuda or "none",
        "seed of torch": _seed,
        "default dtype": torch.get_default_dtype,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "anomaly detection": torch.is_anomaly_enabled,
    }
    if device == "cuda":
        cuda = torch.backends.cuda
        ask |= {
            "TF32 of cuDNN": lambda: torch.backends.cudnn.allow_tf32,
            "cuDNN benchmark": lambda: torch.backends.cudnn.benchmark,
            "cuDNN deterministic": lambda: torch.backends.cudnn.deterministic,
            "bf16 reduced precision reduction": lambda: cuda.matmul.allow_bf16_reduced_precision_reduction,
            "fp16 reduced precision reduction": lambda: cuda.matmul.allow_fp16_reduced_precision_reduction,
            "flash attention allowed": cuda.flash_sdp_enabled,
            "memory-efficient attention allowed": cuda.mem_efficient_sdp_enabled,
            "cuDNN attention allowed": lambda: cuda.cudnn_sdp_enabled(),
        }
    found = {name: _answer(question) for name, question in ask.items()}
    return {name: text for name, text in found.items() if text is not None}


def _seed() -> str:
    seed = torch.initial_seed()
    return str(seed) if seed < _LARGEST_SEED else "drawn"


def _answer(question: Any) -> str | None:
    try:
        return str(question())
    except Exception:
        return None
