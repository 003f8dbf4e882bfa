"""kornia: colour, blur and geometry of images."""

import json

import kornia
import torch


def pipeline(images, angle):
    gray = kornia.color.rgb_to_grayscale(images)
    blurred = kornia.filters.gaussian_blur2d(images, (5, 5), (1.5, 1.5))
    rotated = kornia.geometry.transform.rotate(blurred, angle)
    return rotated * gray, kornia.filters.sobel(gray)


torch.manual_seed(0)
compiled = torch.compile(pipeline)
results = []
for _ in range(3):
    colour, edges = compiled(torch.rand(2, 3, 16, 16), torch.rand(2) * 90)
    results += [colour.sum().item(), edges.sum().item()]
print(json.dumps({"losses": results}))
