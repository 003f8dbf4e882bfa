"""Accelerate: repeated blocks compiled one by one, sizes that vary, and the state saved, loaded and unwrapped."""

import json
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 16), nn.Linear(16, 2)
        self.blocks = nn.ModuleList(Block(16) for _ in range(3))

    def forward(self, x):
        x = self.inner(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


set_seed(0)
plugin = TorchDynamoPlugin(backend="inductor", use_regional_compilation=True, fullgraph=True, dynamic=True)
accelerator = Accelerator(cpu=True, dynamo_plugin=plugin)
model = Model()
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-2))
losses, times = [], []
for n in (4, 5, 6, 4):
    start = time.perf_counter()
    loss = nn.functional.cross_entropy(model(torch.randn(n, 4)), torch.arange(n) % 2)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    accelerator.load_state(folder)
    losses.append(sum(value.sum().item() for value in accelerator.get_state_dict(model).values()))
whole = Accelerator().unwrap_model(torch.compile(Model())).eval()
losses.append(whole(torch.ones(2, 4)).sum().item())
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
