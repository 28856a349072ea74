"""A program that saves behind its first step, makes everything anew and goes on (a preemption): weights, moments, the
schedule, its random numbers, its place in the samples, a moving average."""

import io

from job import MISTAKE, RANK, ddp, nn, own, step, torch


def made():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, amsgrad=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    return model, optimizer, schedule


def saved(model, optimizer, schedule, place):
    file = io.BytesIO()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save({**states, "place": place, "random": torch.get_rng_state()}, file)
    file.seek(0)
    return torch.load(file)


def loaded(states):
    model, optimizer, schedule = made()
    model.load_state_dict(states["model"])
    if MISTAKE == "without-optimizer":
        states["optimizer"]["state"] = {}
    if MISTAKE == "without-largest":
        for held in states["optimizer"]["state"].values():
            held["max_exp_avg_sq"] = torch.zeros_like(held["max_exp_avg_sq"])
    if MISTAKE == "without-step-count":
        for held in states["optimizer"]["state"].values():
            held["step"] = torch.zeros_like(held["step"])
    if MISTAKE == "moments-in-bf16":
        for held in states["optimizer"]["state"].values():
            held["exp_avg"] = held["exp_avg"].bfloat16().float()
    optimizer.load_state_dict(states["optimizer"])
    schedule.load_state_dict(states["schedule"])
    if MISTAKE == "schedule-again":
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2
    if MISTAKE == "weights-of-start":
        with torch.no_grad():
            model[4].weight.copy_(made()[0][4].weight)
    if not (MISTAKE == "random-again" and RANK == 1):
        torch.set_rng_state(states["random"])
    else:
        torch.manual_seed(1)
    return model, optimizer, schedule, states["place"] if MISTAKE != "samples-again" else 0


model, optimizer, schedule = made()
samples, labels = torch.randn(4, 8, 16), torch.randint(4, (4, 8))
net, place = ddp(model), 0
for number in range(3):
    noise = 0.1 * torch.randn(8, 16)
    loss = nn.functional.cross_entropy(net(own(samples[place] + noise)), own(labels[place]))
    step(optimizer, loss)
    schedule.step()
    place += 1
    if number == 0:
        model, optimizer, schedule, place = loaded(saved(model, optimizer, schedule, place))
        net = ddp(model)
