"""Kornia: compiled image filters and a pipeline of augmentations, before the training of a small network."""

import json
import time

import kornia
import kornia.augmentation as K
import torch
from torch import nn

torch.manual_seed(0)
augment = K.AugmentationSequential(
    K.RandomHorizontalFlip(p=0.5),
    K.RandomAffine(15.0, p=1.0),
    K.ColorJitter(0.1, 0.1, 0.1, p=1.0),
    data_keys=["input"],
)


@torch.compile
def features(x):
    edges = kornia.filters.sobel(kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)))
    return torch.cat([kornia.color.rgb_to_hsv(x), edges], 1)


net = nn.Sequential(
    nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
)
compiled, pipeline = torch.compile(net), torch.compile(augment)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses, times = [], []
for _ in range(4):
    images, labels = torch.rand(4, 3, 16, 16), torch.randint(0, 2, (4,))
    start = time.perf_counter()
    with torch.no_grad():
        images = pipeline(images)
    loss = nn.functional.cross_entropy(compiled(features(images)), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses += [loss.item(), images.sum().item()]
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
