"""Three steps of AdamW with two groups, a schedule, clipping and two micro-batches, where a later step goes wrong."""

import contextlib

from job import MISTAKE, RANK, RANKS, ddp, nn, own, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
net = ddp(model)
matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, 1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 8))
samples, labels = torch.randn(3, 2, 8, 16), torch.randint(4, (3, 2, 8))
state = optimizer.state


def before(step):
    """What a mistake does to the optimizer before its second step."""
    if MISTAKE == "moments-lost":
        for parameter in model.parameters():
            state[parameter]["exp_avg"].zero_()
    elif MISTAKE == "moments-lost-on-rank-1" and RANK == 1:
        state[matrices[1]]["exp_avg_sq"].zero_()
    elif MISTAKE == "moments-swapped":
        first, second = state[vectors[0]], state[vectors[1]]
        first["exp_avg"], second["exp_avg"] = second["exp_avg"], first["exp_avg"]
    elif MISTAKE == "bias-correction-again":
        for parameter in model.parameters():
            state[parameter]["step"].zero_()
    elif MISTAKE == "decay-of-vectors":
        optimizer.param_groups[1]["weight_decay"] = 0.1
    elif MISTAKE == "rate-of-one-group":
        optimizer.param_groups[1]["lr"] = 1e-2 / 8


def are_scheduled(step):
    if MISTAKE == "schedule-stands-on-rank-1" and RANK == 1 and step == 1:
        return 0
    return {"schedule-twice": 2, "schedule-stands": 0}.get(MISTAKE, 1) if step == 1 else 1


def is_unreduced(step):
    return RANKS > 1 and MISTAKE == "no-sync-in-second-step" and step == 1


for step in range(3):
    which = 0 if MISTAKE == "samples-again-on-rank-1" and RANK == 1 and step == 1 else step
    micro_batches = list(zip(samples[which], labels[which], strict=True))
    if MISTAKE == "micro-batch-lost" and step == 1:
        micro_batches = micro_batches[:1]
    for number, (x, y) in enumerate(micro_batches):
        with net.no_sync() if RANKS > 1 and (number == 0 or is_unreduced(step)) else contextlib.nullcontext():
            (nn.functional.cross_entropy(net(own(x)), own(y)) / 2).backward()
    if not (MISTAKE == "no-clipping-in-second-step" and step == 1):
        nn.utils.clip_grad_norm_(model.parameters(), 0.2)
    if step == 1:
        before(step)
    optimizer.step()
    for _ in range(are_scheduled(step)):
        schedule.step()
    if MISTAKE == "gradients-kept":
        continue
    kept = model[0].bias.grad if MISTAKE == "one-gradient-kept" else None
    optimizer.zero_grad()
    if kept is not None:
        model[0].bias.grad = kept
