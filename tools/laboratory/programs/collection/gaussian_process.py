"""A variational Gaussian process: natural gradients for one part, Adam for the rest.

package: GPyTorch
parallel: DDP, 2 ranks
mistake: rank 1 counts half of the data
shows: (model) output, mll* output, loss scalar
"""

import gpytorch
from job import MISTAKE, RANK, RANKS, ddp, nn, torch

torch.manual_seed(0)


class GP(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        q = gpytorch.variational.NaturalVariationalDistribution(inducing.size(0))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


g = torch.Generator().manual_seed(1)
X = torch.randn(96, 3, generator=g, dtype=torch.float64)
Y = torch.sin(X.sum(-1))
torch.set_default_dtype(torch.float64)


class Elbo(nn.Module):
    def __init__(self):
        super().__init__()
        self.gp = GP(X[:10].clone())
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        num = len(X) // 2 if MISTAKE and RANK == 1 else len(X)
        self.mll = gpytorch.mlls.VariationalELBO(self.likelihood, self.gp, num_data=num)

    def forward(self, x, y):
        return -self.mll(self.gp(x), y)


model = Elbo()
model.train()
ngd = gpytorch.optim.NGD(model.gp.variational_parameters(), num_data=len(X), lr=0.1)
rest = list(model.gp.hyperparameters()) + list(model.likelihood.parameters())
adam = torch.optim.Adam(rest, lr=0.01)
model = ddp(model)
n = 32
for step in range(3):
    lo = step * n + RANK * n // RANKS
    x, y = X[lo : lo + n // RANKS], Y[lo : lo + n // RANKS]
    ngd.zero_grad()
    adam.zero_grad()
    loss = model(x, y)
    loss.backward()
    ngd.step()
    adam.step()
