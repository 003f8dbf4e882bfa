"""Accelerate: a TorchDynamoPlugin, gradient accumulation, and the model unwrapped and saved."""

import json
import time

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
plugin = TorchDynamoPlugin(backend="inductor", mode="default", dynamic=False)
accelerator = Accelerator(cpu=True, dynamo_plugin=plugin, gradient_accumulation_steps=2)
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Embedding(50, 32), nn.TransformerEncoder(layer, 2), nn.Linear(32, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
data = DataLoader(TensorDataset(torch.randint(0, 50, (32, 12))), batch_size=8, shuffle=True)
model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)

losses, times = [], []
for (tokens,) in data:
    start = time.perf_counter()
    with accelerator.accumulate(model):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).mean().item())
    times.append(time.perf_counter() - start)

plain = accelerator.unwrap_model(model, keep_torch_compile=False)
losses.append(sum(value.double().sum().item() for value in plain.state_dict().values()))
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
