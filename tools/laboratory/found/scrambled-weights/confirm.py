"""Without ttrace: are the parameters that `from_pretrained` distributes those of the checkpoint, and what are the
logits worth? torchrun --standalone --nproc-per-node 2 confirm.py"""

import tempfile

import torch
import torch.distributed as dist
from program import CONFIGURATIONS, load, save_checkpoint, tokens
from torch.distributed.tensor import DTensor


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def error(right: torch.Tensor, found: torch.Tensor) -> float:
    return float(torch.dist(right, found) / right.norm())


def compare(directory: str) -> None:
    for name in CONFIGURATIONS:
        one = load(f"{directory}/{name}").eval()
        for sizes in ({"fsdp_size": 2}, {"tp_size": 2}):
            several = load(f"{directory}/{name}", **sizes).eval()
            pairs = zip(one.named_parameters(), several.parameters(), strict=True)
            wrong = [
                (parameter_name, error(right, found))
                for parameter_name, right, found in ((key, a, whole(b)) for (key, a), b in pairs)
                if not torch.equal(right, found)
            ]
            with torch.no_grad():
                logits = [model(input_ids=tokens()[0]).logits for model in (one, several)]
            if dist.get_rank() == 0:
                print(f"{name} {sizes}: {len(wrong)} wrong parameters; logits wrong by {error(*logits):.3g}")
                for parameter_name, by in wrong[:3]:
                    print(f"  {parameter_name}: relative error {by:.3g}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name in CONFIGURATIONS:
            save_checkpoint(name, f"{directory}/{name}")
        dist.init_process_group("gloo")
        compare(directory)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
