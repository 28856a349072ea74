"""What torch.compile and TorchScript hide. Python does not run the inside of such a module: its inputs and outputs are
recorded, under its own name, and a warning says that nothing inside is. Nor are the graphs that the compiler calls in
its place, and the parts that it leaves to Python: which they are is its own affair, and differs from call to call."""

import functools
import sys

import torch

# torch.compile traces through what is wrapped here, and must find nothing. Before 2.3 the function is elsewhere.
is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling


def hides_inside(module: torch.nn.Module) -> str:
    """By what: "torch.compile", "TorchScript"; "" where the modules inside are called as Python has them."""
    if isinstance(module, torch.jit.ScriptModule):
        return "TorchScript"
    if _is_disabled():
        return ""
    compiled_call = getattr(module, "_compiled_call_impl", None)  # by `module.compile()`
    if type(module).__name__ == "OptimizedModule" or hasattr(compiled_call, "_torchdynamo_orig_callable"):
        return "torch.compile"
    return ""


def _is_disabled() -> bool:
    """By TORCH_COMPILE_DISABLE: what is compiled calls what it was made of."""
    return bool(getattr(sys.modules.get("torch._dynamo.config"), "disable", False))


def install(collector, modules) -> None:
    """Wraps the functions that torch.compile returns. Of a module it returns another, which needs no wrapper."""
    compile_ = torch.compile

    @functools.wraps(compile_)
    def patched(model=None, *args, **kwargs):
        compiled = compile_(model, *args, **kwargs)
        # Without a model it is a decorator, which calls torch.compile.
        if model is None or _is_disabled() or isinstance(compiled, torch.nn.Module):
            return compiled
        module = getattr(model, "__self__", None)
        if isinstance(module, torch.nn.Module) and model == module._call_impl:
            return _unless_compiling(compiled, lambda args, kwargs: modules.observe(compiled, module, args, kwargs))
        name = getattr(model, "__qualname__", type(model).__name__)
        return _unless_compiling(compiled, lambda args, kwargs: _run(collector, modules, name, compiled, args, kwargs))

    torch.compile = patched


def _unless_compiling(compiled, run):
    @functools.wraps(compiled)
    def wrapper(*args, **kwargs):
        return compiled(*args, **kwargs) if is_compiling() else run(args, kwargs)

    return wrapper


def _run(collector, modules, name: str, compiled, args: tuple, kwargs: dict):
    if collector.is_recorded():
        collector.safely(
            collector.warn,
            f"not traceable: what runs inside the function '{name}' is compiled by "
            "torch.compile; TORCH_COMPILE_DISABLE=1 shows the modules inside",
        )
    modules.stack.frames.append(None)
    try:
        return compiled(*args, **kwargs)
    finally:
        modules.stack.frames.pop()
