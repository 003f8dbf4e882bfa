"""TensorDict: a policy with other parameters by to_module, returns over a batch of steps, and tensordicts that are stacked."""

import json
import time

import torch
from tensordict import TensorDict, from_module
from tensordict.nn import TensorDictModule
from torch import nn

torch.manual_seed(0)
policy = TensorDictModule(
    nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), ["observation"], ["action"]
)
params = from_module(policy)


@torch.compile
def act(data, params):
    with params.to_module(policy):
        return policy(data)


@torch.compile
def returns(data):
    data, total, found = data.clone(), torch.zeros(data.shape[0]), []
    for t in range(data.shape[1] - 1, -1, -1):
        step = data[:, t]
        total = step["reward"] + 0.9 * total * (1 - step["done"].float())
        found.append(total)
    data["return"] = torch.stack(found[::-1], 1)
    return data.reshape(-1)


@torch.compile
def doubled(first, second):
    return torch.stack([first, second], 0).apply(lambda x: x * 2)


losses, times = [], []
for n in (5, 5, 6, 5):
    start = time.perf_counter()
    made = act(TensorDict({"observation": torch.randn(n, 4)}, [n]), params)
    loss = made["action"].square().mean()
    loss.backward()
    reward = TensorDict({"reward": torch.randn(n, 3), "done": torch.rand(n, 3) > 0.5}, [n, 3])
    both = doubled(made.detach(), made.detach())
    losses += [loss.item(), returns(reward)["return"].sum().item(), both["action"].sum().item()]
    times.append(time.perf_counter() - start)
losses.append(sum(p.grad.abs().sum().item() for p in policy.parameters()))
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
