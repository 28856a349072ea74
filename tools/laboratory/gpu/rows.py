"""What is tried: programs with something of a device in them, each with what it must equal and a wrong twin."""

import shlex
from dataclasses import dataclass
from typing import Any

PYTORCH, TRANSFORMERS = "pytorch/train.py", "transformers/trainer.py"
MISTAKES = "pytorch/mistakes.py"


@dataclass(frozen=True)
class Program:
    script: str  # below tools/frameworks
    words: tuple[str, ...]
    ranks: int = 1

    def on(self, device: str) -> "Program":
        """What begins with DEVICE among its words is of that device."""
        words = tuple(word.replace("DEVICE", device) for word in self.words)
        return Program(self.script, words, self.ranks)


@dataclass(frozen=True)
class Row:
    """A candidate that must be the same as its reference, and have the same bits unrecorded; and one that must not."""

    name: str
    reference: Program
    candidate: Program
    wrong: Program
    needs: str = ""  # what a CPU does not have
    iterations: str = "0"
    hides: bool = False  # some of what the candidate computes is not seen


@dataclass(frozen=True)
class Watched:
    """A job that `ttrace watch` finds right, and one that it finds wrong."""

    name: str
    right: Program
    wrong: Program
    needs: str = ""


@dataclass(frozen=True)
class Alone:
    """A program of this folder that holds parts of the recorder against each other: the right ones end with 0."""

    name: str
    script: str
    needs: str = ""


def _train(options: str = "", ranks: int = 1, device: str = "DEVICE") -> Program:
    words = shlex.split(f"--device {device} --deterministic --digest {options}")
    return Program(PYTORCH, tuple(words), ranks)


def _trainer(options: str = "", ranks: int = 1, device: str = "DEVICE") -> Program:
    return Program(TRANSFORMERS, tuple(shlex.split(f"--device {device} --digest {options}")), ranks)


def _row(name: str, options: str, mistake: str, ranks: int = 1, reference: Program | None = None, **more: Any) -> Row:
    candidate = _train(options, ranks)
    wrong = Program(MISTAKES, ("--wrong", mistake, *candidate.words), ranks)
    return Row(name, reference or _train(), candidate, wrong, **more)


_CPU, _CPU_BF16 = _train(device="cpu"), _train("--dtype bfloat16", device="cpu")
_BF16, _FP16 = _train("--dtype bfloat16"), _train("--autocast float16")
_TF32 = "--matmul-precision high"
_FOR_LOOP = _train("--optimizer for-loop")

# In the order in which they are begun: where the time ends, the last ones are left out.
ROWS: list[Row | Watched | Alone] = [
    Alone("recorder-parts", "recorder_parts.py"),
    _row("one-process", "", "rotary", reference=_CPU),
    _row("one-process-bf16", "--dtype bfloat16", "scale", reference=_CPU_BF16),
    _row("ddp-2", "--strategy ddp", "unsynced", 2),
    _row("fsdp2-2", "--strategy fsdp2", "undivided", 2),
    _row("tp-2", "--strategy tp", "unsummed", 2),
    _row("side-stream", "--side-stream", "late"),
    # The first step is taken as it is; the second is captured, and all from then on are replays.
    _row("captured-step", "--capture --steps 4", "scale", 1, _train("--steps 4"), needs="CUDA graphs"),
    _row("captured-step-recorded", "--capture --steps 4", "scale", 1, _train("--steps 4"), needs="CUDA graphs",
         iterations="0-1", hides=True),
    _row("compile-reduce-overhead", "--compile reduce-overhead", "scale", hides=True),
    _row("fp16-scaler", "--autocast float16 --strategy ddp", "early-clip", 2, _FP16),
    _row("fp16-scaler-fused", "--autocast float16 --optimizer fused", "early-clip", reference=_FP16),
    _row("attention-flash", "--dtype bfloat16 --attention flash", "causal", reference=_BF16),
    _row("attention-efficient", "--attention efficient", "causal", needs="memory-efficient kernel"),
    _row("attention-math", "--attention math", "causal"),
    _row("optimizer-fused", "--optimizer fused", "decay", reference=_FOR_LOOP),
    _row("optimizer-foreach", "--optimizer foreach", "decay", reference=_FOR_LOOP),
    Row("tf32-off", _train(), _train("--strategy ddp", 2), _train(f"{_TF32} --strategy ddp", 2), needs="TF32"),
    _row("tf32-on", f"{_TF32} --strategy ddp", "unsynced", 2, _train(_TF32), needs="TF32"),
    _row("checkpoint", "--checkpoint non-reentrant", "recompute"),
    _row("checkpoint-reentrant", "--checkpoint reentrant", "recompute"),
    _row("offload-activations", "--offload activations", "scale"),
    _row("offload-parameters", "--strategy fsdp2 --offload parameters", "undivided", 2),
    Watched("watch-ddp-2", _train("--strategy ddp --steps 40", 2), Program(
        MISTAKES, ("--wrong", "flip", *_train("--strategy ddp --steps 40").words), 2)),
    _row("bf16-ddp-2", "--dtype bfloat16 --strategy ddp", "unsynced", 2, _BF16),
    _row("ddp-4", "--strategy ddp", "unsynced", 4),
    _row("fsdp2-4", "--strategy fsdp2", "undivided", 4),
    _row("fsdp2-tp-4", "--strategy fsdp2-tp", "unsummed", 4),
    _row("nccl-ddp-1", "--strategy ddp --backend nccl", "scale", needs="NCCL"),
    _row("nccl-fsdp2-1", "--strategy fsdp2 --backend nccl", "scale", needs="NCCL"),
    _row("nccl-ddp-2", "--strategy ddp --backend nccl", "unsynced", 2, needs="NCCL"),
    _row("compile-inductor", "--compile inductor", "scale", hides=True),
    Row("trainer", _trainer(device="cpu"), _trainer(), _trainer("--shifted")),
    Row("trainer-ddp-2", _trainer(device="cpu"), _trainer(ranks=2), _trainer("--shifted", 2)),
]  # fmt: skip
