"""GPyTorch: the hyperparameters of an exact Gaussian process, with a compiled marginal likelihood, and its prediction."""

import json
import time

import gpytorch
import torch


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


torch.manual_seed(0)
x = torch.linspace(0, 1, 30)
y = torch.sin(6 * x) + 0.1 * torch.randn(30)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Process(x, y, likelihood)
marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)


@torch.compile
def negative_log_likelihood(x, y):
    return -marginal(model(x), y)


optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
losses, times = [], []
for _ in range(5):
    start = time.perf_counter()
    optimizer.zero_grad()
    loss = negative_log_likelihood(x, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
model.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    predicted = likelihood(model(torch.linspace(0.05, 0.95, 7)))
losses += [predicted.mean.sum().item(), predicted.variance.sum().item()]
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
