"""torchmetrics: functional metrics in a compiled evaluation step, and a collection of metrics that is compiled itself."""

import json
import time

import torch
import torchmetrics
from torch import nn
from torchmetrics.functional import mean_squared_error
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_f1_score

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5)).eval()
collection = torchmetrics.MetricCollection(
    {
        "accuracy": torchmetrics.classification.MulticlassAccuracy(5, validate_args=False),
        "confusion": torchmetrics.classification.MulticlassConfusionMatrix(5, validate_args=False),
    }
)


@torch.compile
def evaluate(x, y):
    logits = net(x)
    accuracy = multiclass_accuracy(logits, y, num_classes=5, average="micro", validate_args=False)
    f1 = multiclass_f1_score(logits, y, num_classes=5, validate_args=False)
    return logits, accuracy + f1 + mean_squared_error(logits.amax(-1), y.float())


update = torch.compile(collection.update)
losses, times = [], []
with torch.no_grad():
    for _ in range(4):
        x, y = torch.randn(20, 12), torch.randint(0, 5, (20,))
        start = time.perf_counter()
        logits, score = evaluate(x, y)
        update(logits, y)
        losses.append(score.item())
        times.append(time.perf_counter() - start)
found = collection.compute()
losses += [found["accuracy"].item(), *found["confusion"].diagonal().tolist()]
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
