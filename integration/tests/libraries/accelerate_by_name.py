"""Accelerate: a Python class of blocks, compiled by a backend that is chosen by its name."""

import json
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


set_seed(1)
accelerator = Accelerator(cpu=True, dynamo_backend="aot_eager", mixed_precision="no")
model = nn.Sequential(nn.Linear(8, 16), Block(16), Block(16), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(TensorDataset(torch.randn(20, 8), torch.randint(0, 3, (20,))), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
losses, times = [], []
for x, y in data:
    start = time.perf_counter()
    with accelerator.autocast():
        loss = nn.functional.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
losses.append(sum(p.double().sum().item() for p in accelerator.unwrap_model(model).parameters()))
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
