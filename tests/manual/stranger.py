"""A repository as a stranger has it: ten commits of a small trainer, the seventh of which has a mistake.

python stranger.py DIRECTORY
"""

import os
import pathlib
import subprocess
import sys


class Repository:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True)
        self.commits = 0
        self.git("init", "-q", "-b", "main")

    def git(self, *words):
        """Runs git with an author and a day of its own, so that the commits have the same ids each time."""
        who = {"NAME": "Ada", "EMAIL": "ada@example.org", "DATE": f"2026-03-{self.commits + 1:02} 09:00 +0000"}
        variables = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in who.items()}
        environment = {**os.environ, **variables, "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", *words], cwd=self.directory, env=environment, check=True, stdout=subprocess.DEVNULL)

    def commit(self, subject):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)
        self.commits += 1

    def write(self, name, text):
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def replace(self, name, old, new):
        text = (self.directory / name).read_text()
        assert text.count(old) == 1, f"{name}: {old}"
        self.write(name, text.replace(old, new))


def begin(repository):
    """A model on one process: two commits."""
    repository.write("README.md", "# wordle\n\nTrains a small language model on letters.\n")
    repository.write(".gitignore", "__pycache__/\n*.pt\n")
    repository.write("letters/__init__.py", "")
    repository.write(
        "letters/data.py",
        '''import torch

TEXT = (
    "the quick brown fox jumps over the lazy dog while the five boxing wizards jump quickly "
    "and sphinx of black quartz judge my vow as pack my box with five dozen liquor jugs "
)
LETTERS = sorted(set(TEXT))


def encode(text):
    return torch.tensor([LETTERS.index(c) for c in text])


def batches(batch, length, steps, seed):
    """Yields (inputs, targets), the same for every run with this seed."""
    draw = torch.Generator().manual_seed(seed)
    tokens = encode(TEXT * 4)
    for _ in range(steps):
        at = torch.randint(len(tokens) - length - 1, (batch,), generator=draw)
        rows = torch.stack([tokens[i : i + length + 1] for i in at])
        yield rows[:, :-1], rows[:, 1:]
''',
    )
    repository.write(
        "letters/model.py",
        """import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, letters, width=32, heads=4, layers=2, length=32):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
""",
    )
    repository.write(
        "train.py",
        """import argparse

import torch
import torch.nn.functional as F

from letters.data import LETTERS, batches
from letters.model import Model


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    model = Model(len(LETTERS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step, (x, y) in enumerate(batches(args.batch, 32, args.steps, args.seed)):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
""",
    )
    repository.commit("A language model of letters")

    repository.replace(
        "letters/model.py",
        "        self.head = nn.Linear(width, letters)\n",
        """        self.head = nn.Linear(width, letters)
        self.apply(start)
""",
    )
    repository.replace(
        "letters/model.py",
        "class Attention(",
        """def start(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.05)
        nn.init.zeros_(module.bias)


class Attention(""",
    )
    repository.commit("Start from small weights")


def make_data_parallel(repository):
    """The third."""
    repository.write(
        "letters/dist.py",
        '''import os

import torch
import torch.distributed as dist


def start():
    if "RANK" in os.environ:
        dist.init_process_group("gloo")


def stop():
    if dist.is_initialized():
        dist.destroy_process_group()


def rank():
    return dist.get_rank() if dist.is_initialized() else 0


def world():
    return dist.get_world_size() if dist.is_initialized() else 1


class Grid:
    """Ranks next to each other share a model (tp), those apart share none of the data (dp)."""

    def __init__(self, tp):
        self.tp, self.dp = tp, world() // tp
        self.tp_rank, self.dp_rank = rank() % tp, rank() // tp
        self.tp_group = self.dp_group = None
        if dist.is_initialized():
            for d in range(self.dp):
                group = dist.new_group([d * tp + t for t in range(tp)])
                if d == self.dp_rank:
                    self.tp_group = group
            for t in range(tp):
                group = dist.new_group([d * tp + t for d in range(self.dp)])
                if t == self.tp_rank:
                    self.dp_group = group

    def rows(self, tensor):
        """This rank's part of a batch."""
        return tensor.chunk(self.dp)[self.dp_rank]

    def average_gradients(self, model):
        if self.dp == 1:
            return
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=self.dp_group)
            parameter.grad /= self.dp
''',
    )
    repository.replace("train.py", "from letters.data", "from letters import dist\nfrom letters.data")
    repository.replace(
        "train.py",
        "    torch.manual_seed(args.seed)\n",
        "    dist.start()\n    grid = dist.Grid(tp=1)\n    torch.manual_seed(args.seed)\n",
    )
    repository.replace(
        "train.py", "        loss = F.cross", "        x, y = grid.rows(x), grid.rows(y)\n        loss = F.cross"
    )
    repository.replace(
        "train.py", "        optimizer.step()\n", "        grid.average_gradients(model)\n        optimizer.step()\n"
    )
    repository.replace(
        "train.py",
        """        print(f"{step}: {loss.item():.4f}")
""",
        """        if dist.rank() == 0:
            print(f"{step}: {loss.item():.4f}")
    dist.stop()
""",
    )
    repository.commit("Data parallel training")


def make_tensor_parallel(repository):
    """The fourth."""
    repository.write(
        "letters/parallel.py",
        '''"""Linear layers whose weights are split over the ranks of a tensor-parallel group."""

import torch
import torch.distributed as dist
from torch import nn


class Copy(torch.autograd.Function):
    """The identity, whose gradient is summed over the group."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Reduce(torch.autograd.Function):
    """The sum over the group, whose gradient is the identity."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def part(tensor, dim, grid):
    return nn.Parameter(tensor.detach().chunk(grid.tp, dim)[grid.tp_rank].clone())


class ColumnLinear(nn.Linear):
    """Its outputs are split."""

    def split(self, grid):
        self.grid = grid
        self.weight, self.bias = part(self.weight, 0, grid), part(self.bias, 0, grid)

    def forward(self, x):
        if getattr(self, "grid", None) and self.grid.tp > 1:
            x = Copy.apply(x, self.grid.tp_group)
        return super().forward(x)


class RowLinear(nn.Linear):
    """Its inputs are split; the bias is added once, behind the sum."""

    def split(self, grid):
        self.grid = grid
        self.weight = part(self.weight, 1, grid)

    def forward(self, x):
        if getattr(self, "grid", None) and self.grid.tp > 1:
            x = nn.functional.linear(x, self.weight)
            return Reduce.apply(x, self.grid.tp_group) + self.bias
        return super().forward(x)


def split(model, grid):
    """Keeps this rank's part of every split layer."""
    for module in model.modules():
        if hasattr(module, "split"):
            module.split(grid)
''',
    )
    repository.replace(
        "letters/model.py",
        "from torch import nn\n",
        "from torch import nn\n\nfrom letters.parallel import ColumnLinear, RowLinear\n",
    )
    for n in "qkv":
        repository.replace("letters/model.py", f"self.{n} = nn.Linear", f"self.{n} = ColumnLinear")
    repository.replace("letters/model.py", "self.out = nn.Linear", "self.out = RowLinear")
    repository.replace("letters/model.py", "self.fc1 = nn.Linear", "self.fc1 = ColumnLinear")
    repository.replace("letters/model.py", "self.fc2 = nn.Linear", "self.fc2 = RowLinear")
    repository.replace("letters/model.py", "        self.heads = heads\n", "        self.size = width // heads\n")
    repository.replace("letters/model.py", "view(b, t, self.heads, -1)", "view(b, t, -1, self.size)")
    repository.replace(
        "train.py",
        "from letters.model import Model\n",
        "from letters.model import Model\nfrom letters.parallel import split\n",
    )
    repository.replace(
        "train.py",
        '''    p.add_argument("--seed"''',
        '''    p.add_argument("--tp", type=int, default=1, help="ranks that share a model")
    p.add_argument("--seed"''',
    )
    repository.replace("train.py", "grid = dist.Grid(tp=1)", "grid = dist.Grid(args.tp)")
    repository.replace(
        "train.py", "    model = Model(len(LETTERS))\n", "    model = Model(len(LETTERS))\n    split(model, grid)\n"
    )
    repository.commit("Tensor parallel layers")


def go_on(repository):
    """Six more. The third is to sum one gradient for three layers at once, and forgets to do it at all."""
    repository.write(
        "README.md",
        "# letters\n\nTrains a small language model on letters.\n\n    torchrun --nproc-per-node 4 train.py --tp 2\n",
    )
    repository.commit("Say how to run it")

    repository.replace(
        "train.py",
        "        grid.average_gradients(model)\n",
        """        grid.average_gradients(model)
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, (step + 1) / args.warmup)
""",
    )
    repository.replace(
        "train.py",
        '''    p.add_argument("--tp"''',
        '''    p.add_argument("--warmup", type=int, default=2, help="steps until the learning rate is whole")
    p.add_argument("--tp"''',
    )
    repository.commit("Warm the learning rate up")

    repository.replace(
        "letters/parallel.py",
        """    def forward(self, x):
        if getattr(self, "grid", None) and self.grid.tp > 1:
            x = Copy.apply(x, self.grid.tp_group)
        return super().forward(x)
""",
        """    def forward(self, x, copied=False):
        if not copied and getattr(self, "grid", None) and self.grid.tp > 1:
            x = Copy.apply(x, self.grid.tp_group)
        return super().forward(x)
""",
    )
    repository.replace("letters/model.py", "(f(x).view", "(f(x, copied=True).view")
    repository.commit("One all-reduce for queries, keys and values")

    repository.replace("letters/data.py", "    tokens = encode(TEXT * 4)\n", "    tokens = encode(TEXT).repeat(4)\n")
    repository.commit("Encode the text once")
    repository.replace("letters/model.py", "F.gelu(self.fc1(x))", 'F.gelu(self.fc1(x), approximate="tanh")')
    repository.commit("The faster GELU")
    repository.replace(
        "train.py",
        '            print(f"{step}: {loss.item():.4f}")',
        '            print(f"step {step}  loss {loss.item():.4f}")',
    )
    repository.replace("README.md", "--tp 2\n", "--tp 2\n\nLosses are printed after each step.\n")
    repository.commit("Print what the numbers are")


def make(directory):
    repository = Repository(directory)
    for step in (begin, make_data_parallel, make_tensor_parallel, go_on):
        step(repository)


if __name__ == "__main__":
    make(sys.argv[1])
