"""accelerate: a model prepared with a TorchDynamoPlugin, and one with a backend by name."""

import json

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import TorchDynamoPlugin


def train(accelerator):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    losses = []
    for _ in range(3):
        x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    state = accelerator.unwrap_model(model, keep_torch_compile=False).state_dict()
    return [*losses, sum(value.sum().item() for value in state.values())]


losses = train(Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(backend="inductor")))
AcceleratorState._reset_state(True)
losses += train(Accelerator(cpu=True, dynamo_backend="aot_eager"))
print(json.dumps({"losses": losses}))
