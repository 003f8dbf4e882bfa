"""skorch: a regressor that compiles its module."""

import json

import numpy as np
import torch
from skorch import NeuralNetRegressor

torch.manual_seed(0)
random = np.random.RandomState(0)
x, y = random.randn(32, 8).astype("float32"), random.randn(32, 1).astype("float32")
net = NeuralNetRegressor(
    torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)),
    max_epochs=3,
    lr=0.1,
    train_split=None,
    compile=True,
    verbose=0,
)
net.fit(x, y)
print(json.dumps({"losses": net.history[:, "train_loss"]}))
