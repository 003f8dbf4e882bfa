"""Ignite: an Engine whose update function is compiled in part, with a metric and handlers."""

import json
import time

import torch
from ignite.engine import Engine, Events
from ignite.metrics import Accuracy, RunningAverage
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses, times = [], []


@torch.compile
def forward(x, y):
    logits = model(x)
    return nn.functional.cross_entropy(logits, y, label_smoothing=0.1), logits


def update(engine, batch):
    model.train()
    optimizer.zero_grad()
    loss, logits = forward(*batch)
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "y_pred": logits.detach(), "y": batch[1]}


trainer = Engine(update)
RunningAverage(output_transform=lambda out: out["loss"]).attach(trainer, "average")
Accuracy(output_transform=lambda out: (out["y_pred"], out["y"])).attach(trainer, "accuracy")


@trainer.on(Events.ITERATION_STARTED)
def begin(engine):
    engine.state.begun = time.perf_counter()


@trainer.on(Events.ITERATION_COMPLETED)
def note(engine):
    times.append(time.perf_counter() - engine.state.begun)
    losses.append(engine.state.output["loss"])


data = [(torch.randn(8, 1, 8, 8), torch.randint(0, 5, (8,))) for _ in range(4)]
state = trainer.run(data, max_epochs=1)
losses += [state.metrics["average"], state.metrics["accuracy"]]
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
