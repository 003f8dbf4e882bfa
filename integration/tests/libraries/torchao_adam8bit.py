"""torchao: AdamW8bit, an optimizer that compiles its own step and keeps its state in quantized tensors."""

import json
import time

import torch
from torch import nn
from torchao.optim import AdamW8bit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
optimizer = AdamW8bit(model.parameters(), lr=1e-2)
losses, times = [], []
for _ in range(4):
    x = torch.randn(8, 64)
    start = time.perf_counter()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
