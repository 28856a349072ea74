"""Several models, and each rank has some: one encodes, the other predicts from labels and joins both."""

from job import MISTAKE, RANK, RANKS, dist, nn, torch

MICROBATCHES = 2
encoder = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 12))
predictor = nn.Sequential(nn.Embedding(9, 16), nn.Tanh(), nn.Linear(16, 12))
joiner = nn.Linear(12, 9)
encodes, joins = RANK == 0, RANK == RANKS - 1
models = [encoder] * encodes + [predictor, joiner] * joins
optimizer = torch.optim.AdamW([parameter for model in models for parameter in model.parameters()], 1e-3)


def loss_of(encoded, labels):
    joined = joiner(torch.tanh(encoded + predictor(labels[:, :-1])))
    return nn.functional.cross_entropy(joined.flatten(0, 1), labels[:, 1:].flatten()) / MICROBATCHES


for _ in range(3):
    optimizer.zero_grad()
    sounds, texts = torch.randn(MICROBATCHES, 3, 8, 10), torch.randint(9, (MICROBATCHES, 3, 9))
    encoded = []
    for sound in sounds:
        encoded.append(encoder(sound) if encodes else torch.empty(3, 8, 12))
        if RANKS > 1:
            dist.send(encoded[-1].detach(), 1) if encodes else dist.recv(encoded[-1], 0)
    buffer = torch.empty(3, 8, 12)
    gradients = []
    for each, text in zip(encoded, texts, strict=True):
        if joins:
            loss_of(each if encodes else each.requires_grad_(), text).backward()
        if RANKS > 1:
            dist.recv(buffer, 1) if encodes else dist.send(each.grad, 0)
            gradients.append(buffer if MISTAKE == "overwritten" else buffer.clone())
    if encodes and not joins:
        for each, gradient in zip(encoded, gradients, strict=True):
            each.backward(gradient)
    optimizer.step()
