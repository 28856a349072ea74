"""Trains a Llama for some steps and prints, as JSON, a line for each: seconds on the clock, and the most memory of the
device that was in use. It is started by figures.py."""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from types import FrameType

import torch

from torchgpt.model import CrossEntropy, Llama
from torchgpt.options import Options

MODELS = {
    "tiny": Options(layers=2, hidden=64, heads=4, kv_heads=4, ffn=256, seq=32, vocab=1024, micro_batch_size=2),
    "124m": Options(layers=12, hidden=768, heads=12, kv_heads=12, ffn=2048, seq=512, vocab=25216, micro_batch_size=8),
    "1b": Options(layers=16, hidden=2048, heads=16, kv_heads=16, ffn=5632, seq=512, vocab=50304, micro_batch_size=4),
}
_SAMPLED_EVERY = 0.005  # seconds


class Sampler(threading.Thread):
    """Counts where the threads of the recorder are, autograd's among them."""

    def __init__(self):
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_SAMPLED_EVERY):
            for thread, frame in sys._current_frames().items():
                if thread != self.ident:
                    self.counts[_place_in_recorder(frame)] += 1

    def end(self) -> dict[str, int]:
        self._ended.set()
        self.join()
        return dict(self.counts.most_common(12))


def _place_in_recorder(frame: FrameType | None) -> str:
    """The innermost function of the recorder, where `safely` has called it: through that goes all that it does. What it
    wraps is the program's."""
    innermost = ""
    while frame is not None:
        folder, _, name = frame.f_code.co_filename.rpartition("/")
        if folder.endswith("ttrace_torch"):
            if frame.f_code.co_name == "safely":
                return innermost or "collector.py: safely"
            innermost = innermost or f"{name}: {frame.f_code.co_name}"
        frame = frame.f_back
    return "the program"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    options, device = MODELS[arguments.model], arguments.device
    torch.manual_seed(0)
    with torch.device(device):
        model = Llama(options).to(torch.bfloat16)
    loss = CrossEntropy(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sampler = Sampler()
    for step in range(arguments.steps):
        if step == 1:
            sampler.start()
        synchronize(device)
        started = time.perf_counter()
        text = torch.randint(options.vocab, (options.micro_batch_size, options.seq + 1), device=device)
        loss(model(text[:, :-1]), text[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
        synchronize(device)
        seconds = time.perf_counter() - started
        print(json.dumps({"step": step, "seconds": seconds, "peak_bytes": peak_bytes(device)}), flush=True)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"parameters": parameters, "samples": sampler.end()}), flush=True)


def synchronize(device: str) -> None:
    getattr(torch, device).synchronize()


def peak_bytes(device: str) -> int:
    """Since the last call."""
    if device == "cpu":
        return 0
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return peak


if __name__ == "__main__":
    main()
