"""Without ttrace: the norms of gradients after two runs of the schedule, against one process.
torchrun --standalone --nproc-per-node 2 confirm.py"""

import torch.distributed as dist
from program import Network, accumulate, accumulate_in_stages


def main() -> None:
    dist.init_process_group("gloo")
    one = Network()
    accumulate(one)
    for divide_loss in (False, True):
        for name, parameter in accumulate_in_stages(divide_loss).named_parameters():
            right = one.get_parameter(name).grad.norm()
            said = "loss divided" if divide_loss else "gradients divided, as is the default"
            print(f"{said}: {name}: {float(parameter.grad.norm() / right):.6f} of one process's gradient", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
