"""DQNLoss with targets that follow, over TensorDicts.

package: TorchRL
parallel: data parallel by hand, 2 ranks
mistake: the gradient of one bias is not reduced
shows: *2*bias main_grad
"""

from job import MISTAKE, RANK, RANKS, dist, nn, torch
from tensordict import TensorDict
from torchrl.data import OneHot
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

torch.manual_seed(0)
net = MLP(in_features=6, out_features=4, num_cells=[24, 24], activation_class=nn.Tanh)
actor = QValueActor(net, in_keys=["observation"], spec=OneHot(4))
loss_module = DQNLoss(actor, action_space="one-hot", delay_value=True, double_dqn=True)
loss_module.make_value_estimator(gamma=0.99)
updater = SoftUpdate(loss_module, eps=0.95)
opt = torch.optim.Adam(loss_module.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(1)
N, n = 96, 32
obs, nxt = torch.randn(N, 6, generator=g), torch.randn(N, 6, generator=g)
act = torch.nn.functional.one_hot(torch.randint(4, (N,), generator=g), 4)
rew = torch.randn(N, 1, generator=g)
done = torch.rand(N, 1, generator=g) < 0.2
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    at = slice(lo, lo + m)
    td = TensorDict(
        {
            "observation": obs[at],
            "action": act[at],
            "next": {"observation": nxt[at], "reward": rew[at], "done": done[at], "terminated": done[at]},
        },
        batch_size=[m],
    )
    out = loss_module(td)
    loss = out["loss"]
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for name, p in loss_module.named_parameters():
            if p.grad is None:
                continue
            if MISTAKE and "2" in name and name.endswith("bias"):
                continue
            dist.all_reduce(p.grad)
            p.grad /= RANKS
    opt.step()
    updater.step()
