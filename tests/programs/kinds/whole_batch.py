"""What is taken of all samples of the batch, on whichever ranks these are: the mean and the deviation that inputs are
standardised by, and a loss's denominator. `own`: each rank takes its own. And a teacher, which no rank may leave in the
mode that it trains in."""

import sys

from job import MISTAKE, RANKS, ddp, nn, own, step, summed, torch

kind = sys.argv[1]
functional = nn.functional
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 6))
teacher = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 6))
teacher.train(MISTAKE == "train")
net, optimizer = ddp(model), torch.optim.AdamW(model.parameters(), 1e-2)
of_all = (lambda x: x) if MISTAKE == "own" else summed


def standardised(x):
    count = of_all(torch.tensor(float(len(x))))
    mean = of_all(x.sum(0)) / count
    return (x - mean) / (of_all((x - mean).square().sum(0)) / (count - 1)).sqrt()


def whole(x):
    """The sum over all ranks, of which the rank's own term has the gradient."""
    return x - x.detach() + of_all(x.detach())


for _ in range(2):
    x, labels, weights = 2 * torch.randn(64, 16) + 1, torch.randint(6, (64,)), torch.rand(64)
    if kind == "standardised":
        loss = functional.cross_entropy(net(standardised(own(x))), own(labels))
    elif kind == "taught":
        with torch.no_grad():
            wanted = teacher(own(x)).softmax(-1)
        loss = functional.kl_div(functional.log_softmax(net(own(x)), -1), wanted, reduction="batchmean")
    elif kind == "weighted":
        terms = functional.cross_entropy(net(own(x)), own(labels), reduction="none") * own(weights)
        loss = whole(terms.sum()) / of_all(own(weights).sum())
    else:  # dice
        shares, truth = net(own(x)).sigmoid(), functional.one_hot(own(labels), 6).float()
        shared, all_of_them = (shares * truth).sum(), (shares + truth).sum()
        loss = 1 - (2 * whole(shared) + 1) / (whole(all_of_them) + 1)
    is_whole = kind in ("weighted", "dice") and MISTAKE != "own"
    step(optimizer, loss * RANKS if is_whole else loss)  # DDP averages gradients
