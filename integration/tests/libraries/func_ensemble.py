"""torch.func: an ensemble of models by vmap, with a base model on the meta device, trained by compiled functions."""

import copy
import json
import time

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

torch.manual_seed(0)
models = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(3)]
params, buffers = stack_module_state(models)
params = {name: value.detach() for name, value in params.items()}
base = copy.deepcopy(models[0]).to("meta")


def loss_of(params, buffers, x, y):
    return (functional_call(base, (params, buffers), (x,)) - y).square().mean()


@torch.compile
def update(params, buffers, x, y):
    gradients = vmap(grad(loss_of), in_dims=(0, 0, None, None))(params, buffers, x, y)
    return {name: value - 0.1 * gradients[name] for name, value in params.items()}


evaluate = torch.compile(vmap(loss_of, in_dims=(0, 0, None, None)))
losses, times = [], []
for _ in range(5):
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    start = time.perf_counter()
    losses += evaluate(params, buffers, x, y).tolist()
    params = update(params, buffers, x, y)
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
