"""A pipeline of torch.distributed.pipelining in which each rank has two stages, modules of the model that one process
calls as a whole."""

from job import MISTAKE, RANK, RANKS, nn, torch
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

STAGES, MICROBATCHES = 4, 2


class Stage(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.embed = nn.Embedding(30, 16) if number == 0 else None
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 30) if number == STAGES - 1 else None

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        x = x + torch.tanh(self.linear(self.norm(x)))
        return x if self.head is None else self.head(x)


def loss_of(logits, labels):
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return loss * 1.01 if MISTAKE == "scale" else loss


model = nn.Sequential(*[Stage(number) for number in range(STAGES)])
mine = range(RANK, STAGES, RANKS)
optimizer = torch.optim.AdamW([parameter for number in mine for parameter in model[number].parameters()], 1e-3)
if RANKS > 1:
    stages = [PipelineStage(model[number], number, STAGES, torch.device("cpu")) for number in mine]
    schedule = ScheduleInterleaved1F1B(stages, MICROBATCHES, loss_fn=loss_of)
for _ in range(2):
    tokens, labels = torch.randint(30, (4, 6)), torch.randint(30, (4, 6))
    optimizer.zero_grad()
    if RANKS == 1:
        for some, others in zip(tokens.chunk(MICROBATCHES), labels.chunk(MICROBATCHES), strict=True):
            (loss_of(model(some), others) / MICROBATCHES).backward()
    elif RANK == 0:
        schedule.step(tokens)
    else:
        schedule.step(target=labels)
    if MISTAKE == "twice" and RANK == 0:
        for parameter in model[2].parameters():
            parameter.grad /= MICROBATCHES
    optimizer.step()
