"""Two models of one object that train in turn, and a target that follows one of them: names count models, the program's
variables tell which is which."""

import copy

from job import MISTAKE, RANK, RANKS, nn, own, summed, torch


class Agent:
    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
        self.target = copy.deepcopy(self.critic)


def step(optimizer, network, loss):
    optimizer.zero_grad()
    loss.backward()
    for parameter in network.parameters():
        parameter.grad = summed(parameter.grad) / RANKS
    optimizer.step()


def main():
    agent = Agent()
    actor, critic = (torch.optim.SGD(each.parameters(), 0.1) for each in (agent.actor, agent.critic))
    for _ in range(2):
        states, rewards = own(torch.randn(8, 8)), own(torch.randn(8, 1))
        with torch.no_grad():
            chosen = agent.actor(states)
            wanted = rewards + 0.9 * agent.target(torch.cat([states, chosen], 1))
        loss = (agent.critic(torch.cat([states, chosen], 1)) - wanted).square().mean()
        step(critic, agent.critic, 1.02 * loss if MISTAKE == "scale" and RANK == 1 else loss)
        step(actor, agent.actor, -agent.critic(torch.cat([states, agent.actor(states)], 1)).mean())
        with torch.no_grad():
            for ours, trained in zip(agent.target.parameters(), agent.critic.parameters(), strict=True):
                ours.lerp_(trained, 0.1)


main()
