"""TensorDict: a compiled sequence of TensorDictModules, and a compiled update of a tensordict of parameters."""

import json
import time

import torch
from tensordict import TensorDict, from_module
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

torch.manual_seed(0)
policy = TensorDictSequential(
    TensorDictModule(
        nn.Sequential(nn.Linear(6, 16), nn.Tanh()), in_keys=["observation"], out_keys=["hidden"]
    ),
    TensorDictModule(nn.Linear(16, 2), in_keys=["hidden"], out_keys=["action"]),
    TensorDictModule(lambda h, a: torch.cat([h, a], -1).square().mean(-1), ["hidden", "action"], ["value"]),
)
target = from_module(policy).data.clone()


@torch.compile
def loss_of(data):
    data = policy(data)
    wanted = data["reward"] + 0.9 * data["next", "value"]
    return (data["value"] - wanted).square().mean() + data["action"].abs().mean()


@torch.compile
def follow(target, source):
    return target.lerp_(source, 0.1)


optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
losses, times = [], []
for _ in range(5):
    data = TensorDict(
        {"observation": torch.randn(8, 6), "reward": torch.randn(8), "next": {"value": torch.randn(8)}},
        batch_size=[8],
    )
    start = time.perf_counter()
    loss = loss_of(data)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    follow(target, from_module(policy).data)
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
losses.append(sum(value.abs().sum().item() for value in target.values(True, True)))
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
