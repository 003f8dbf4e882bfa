"""torchdiffeq: a neural ODE, with a compiled right-hand side, by an adaptive and by a fixed-step solver."""

import json
import time

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))

    def forward(self, t, y):
        return self.net(y**3) * torch.cos(t)


torch.manual_seed(0)
dynamics = Dynamics()
compiled = torch.compile(dynamics)


@torch.compile
def fixed(y, t):
    return odeint(dynamics, y, t, method="rk4")


optimizer = torch.optim.RMSprop(dynamics.parameters(), lr=1e-2)
t, start_at = torch.linspace(0.0, 1.0, 6), torch.randn(5, 2)
losses, times = [], []
for step in range(4):
    start = time.perf_counter()
    if step % 2:
        path = fixed(start_at, t)
    else:
        path = odeint_adjoint(
            compiled, start_at, t, rtol=1e-5, atol=1e-6, adjoint_params=tuple(dynamics.parameters())
        )
    loss = (path - torch.sin(t)[:, None, None]).abs().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[2]}))
