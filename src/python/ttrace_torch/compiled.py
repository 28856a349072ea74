"""What torch.compile and TorchScript hide. Python does not run the inside of such a module: its inputs and outputs are
recorded, under its own name, and a warning says that nothing inside is. The compiler may leave parts of the inside to
Python, and calls graphs that look like modules; neither is recorded, because they differ from call to call."""

import os
import sys

import torch

# torch.compile traces through what is wrapped here, and must find nothing. Before 2.3 the function is elsewhere.
is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling


def compiler_of(module: torch.nn.Module) -> str:
    """What hides the inside: "torch.compile", "TorchScript"; "" where Python calls the modules inside."""
    if isinstance(module, torch.jit.ScriptModule):
        return "TorchScript"
    compiled_call = getattr(module, "_compiled_call_impl", None)  # by `module.compile()`
    if type(module).__name__ != "OptimizedModule" and not hasattr(compiled_call, "_torchdynamo_orig_callable"):
        return ""
    return "" if is_disabled() else "torch.compile"  # to ask that takes long


def is_disabled() -> bool:
    """By TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE: what torch.compile returns then calls what it was made of."""
    by_config = getattr(sys.modules.get("torch._dynamo.config"), "disable", False)
    return bool(by_config) or os.environ.get("TORCHDYNAMO_DISABLE") == "1"
