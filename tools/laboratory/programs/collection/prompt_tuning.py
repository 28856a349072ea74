"""Prompts in a frozen vision transformer, whose gradients hooks reduce.

package: timm
parallel: data parallel by hand, 2 ranks
mistake: the gradient of one prompt is not reduced
shows: prompts.1 main_grad
"""

import before_torchvision  # noqa: F401
import timm
from job import MISTAKE, RANK, RANKS, dist, nn, torch

torch.manual_seed(0)


class Prompted(nn.Module):
    def __init__(self):
        super().__init__()
        self.vit = timm.create_model(
            "vit_tiny_patch16_224",
            img_size=32,
            patch_size=8,
            embed_dim=48,
            depth=3,
            num_heads=3,
            num_classes=7,
            init_values=1e-1,
        )
        self.vit.requires_grad_(False)
        self.vit.head.requires_grad_(True)
        self.prompts = nn.ParameterList([nn.Parameter(torch.randn(1, 4, 48) * 0.02) for _ in self.vit.blocks])

    def forward(self, x):
        x = self.vit._pos_embed(self.vit.patch_embed(x))
        for prompt, block in zip(self.prompts, self.vit.blocks):
            x = torch.cat([x[:, :1], prompt.expand(len(x), -1, -1), x[:, -16:]], 1)
            x = block(x)
        return self.vit.head(self.vit.norm(x)[:, 0])


model = Prompted()
trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
if RANKS > 1:

    def reduce(p):
        dist.all_reduce(p.grad)
        p.grad.div_(RANKS)

    for n, p in trained:
        if MISTAKE and n == "prompts.1":
            continue
        p.register_post_accumulate_grad_hook(reduce)
opt = torch.optim.SGD([p for _, p in trained], lr=0.5, momentum=0.9, weight_decay=1e-3)
g = torch.Generator().manual_seed(1)
X = torch.randn(24, 3, 32, 32, generator=g)
Y = torch.randint(7, (24,), generator=g)
n = 8
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    at = slice(lo, lo + m)
    loss = nn.functional.cross_entropy(model(X[at]), Y[at])
    opt.zero_grad()
    loss.backward()
    opt.step()
