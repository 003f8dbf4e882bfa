"""diffusers: the repeated blocks of a diffusion transformer, compiled one by one."""

import json

import torch
from diffusers import DiTTransformer2DModel

torch.manual_seed(0)
model = DiTTransformer2DModel(
    num_attention_heads=2,
    attention_head_dim=8,
    in_channels=4,
    num_layers=2,
    sample_size=8,
    num_embeds_ada_norm=10,
).eval()
model.compile_repeated_blocks(fullgraph=True)
results = []
with torch.no_grad():
    for step in range(3):
        sample = model(
            torch.randn(2, 4, 8, 8), timestep=torch.tensor([step, step]), class_labels=torch.tensor([1, 2])
        ).sample
        results.append(sample.sum().item())
print(json.dumps({"losses": results}))
