"""gpytorch: the negative log likelihood of an exact Gaussian process."""

import json

import gpytorch
import torch


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean, self.kernel = (
            gpytorch.means.ConstantMean(),
            gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()),
        )

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


torch.manual_seed(0)
x = torch.linspace(0, 1, 12)
y = torch.sin(x * 6) + 0.1 * torch.randn(12)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Process(x, y, likelihood)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)


@torch.compile
def step_loss(x, y):
    return -objective(model(x), y)


losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = step_loss(x, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"losses": losses}))
