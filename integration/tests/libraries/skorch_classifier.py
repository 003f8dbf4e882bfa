"""skorch: a NeuralNetClassifier with compile=True in a pipeline of scikit-learn, pickled and scored."""

import json
import pickle
import time

import numpy as np
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.hidden, self.out = nn.Linear(10, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def probabilities(logits):
    return logits.softmax(-1)


class Clock(Callback):
    def on_epoch_begin(self, net, **_):
        self.start = time.perf_counter()

    def on_epoch_end(self, net, **_):
        net.history.record("seconds", time.perf_counter() - self.start)


torch.manual_seed(0)
rng = np.random.default_rng(0)
x = rng.normal(size=(48, 10)).astype(np.float32)
y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
loss = {"criterion": nn.CrossEntropyLoss, "predict_nonlinearity": probabilities}
options = {**loss, "max_epochs": 4, "lr": 0.1, "batch_size": 16, "train_split": None, "verbose": 0}
net = NeuralNetClassifier(Net, compile=True, callbacks=[("clock", Clock())], **options)
pipe = make_pipeline(StandardScaler(), net)
pipe.fit(x, y)
net = pipe[-1]
losses = [*net.history[:, "train_loss"], float(pipe.predict_proba(x)[:, 0].sum()), float(pipe.score(x, y))]
losses.append(float(pickle.loads(pickle.dumps(pipe)).predict_proba(x)[:, 1].sum()))
seconds = net.history[:, "seconds"]
print(json.dumps({"losses": [float(loss) for loss in losses], "first": seconds[0], "step": seconds[-1]}))
