"""tensordict: a sequence of modules over a TensorDict."""

import json

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

torch.manual_seed(0)
policy = TensorDictSequential(
    TensorDictModule(torch.nn.Linear(8, 16), in_keys=["observation"], out_keys=["hidden"]),
    TensorDictModule(torch.nn.Tanh(), in_keys=["hidden"], out_keys=["hidden"]),
    TensorDictModule(torch.nn.Linear(16, 2), in_keys=["hidden"], out_keys=["action"]),
)


@torch.compile
def act(data):
    return policy(data)["action"]


results = [act(TensorDict({"observation": torch.randn(4, 8)}, batch_size=[4])).sum().item() for _ in range(3)]
print(json.dumps({"losses": results}))
