"""Without ttrace: gradients of the activation's parameters on each rank, against one process, and what an optimizer
makes of them. torchrun --standalone --nproc-per-node 2 confirm.py"""

import tempfile

import torch
import torch.distributed as dist
from program import load, save_checkpoint, tokens


def on_all_ranks(value: torch.Tensor) -> list[float]:
    values = [torch.zeros_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(values, value)
    return [round(float(value), 6) for value in values]


def compare(path: str) -> None:
    one, several = load(path, 1), load(path, 2)
    for model in (one, several):
        model(input_ids=tokens(), labels=tokens()).loss.backward()
    act_fn = several.model.layers[1].mlp.act_fn
    lines = []
    for name in ("alpha_p", "alpha_n"):
        right = getattr(one.model.layers[1].mlp.act_fn, name).grad
        found = on_all_ranks(getattr(act_fn, name).grad)
        lines.append(f"gradient of {name}: one process {float(right):.6f}, ranks {found}, their sum {sum(found):.6f}")
    torch.optim.SGD(act_fn.parameters(), lr=1.0).step()
    lines.append(f"alpha_p after a step, which all ranks should hold alike: {on_all_ranks(act_fn.alpha_p.detach())}")
    if dist.get_rank() == 0:
        print("\n".join(lines), flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as path:
        save_checkpoint(path)
        dist.init_process_group("gloo")
        compare(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
