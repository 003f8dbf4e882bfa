"""torchmetrics: metrics inside of a compiled evaluation step."""

import json

import torch
import torchmetrics

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
accuracy = torchmetrics.classification.MulticlassAccuracy(num_classes=4)


@torch.compile
def evaluate(x, y):
    logits = model(x)
    accuracy.update(logits, y)
    return torch.nn.functional.cross_entropy(logits, y)


with torch.no_grad():
    results = [evaluate(torch.randn(16, 8), torch.randint(0, 4, (16,))).item() for _ in range(3)]
print(json.dumps({"losses": [*results, accuracy.compute().item()]}))
