"""torchdiffeq: an ordinary differential equation whose right side is compiled."""

import json

import torch
from torchdiffeq import odeint

torch.manual_seed(0)
net = torch.compile(torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for _ in range(3):
    path = odeint(lambda t, y: net(y**3), torch.tensor([[2.0, 0.0]]), torch.linspace(0, 1, 5), method="rk4")
    loss = path.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps({"losses": losses}))
