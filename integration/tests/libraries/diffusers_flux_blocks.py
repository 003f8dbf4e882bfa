"""Diffusers: a small Flux transformer with compiled repeated blocks, trained by flow matching at two image sizes."""

import json
import time

import torch
from diffusers import FluxTransformer2DModel

torch.manual_seed(0)
model = FluxTransformer2DModel(
    in_channels=8,
    num_layers=2,
    num_single_layers=2,
    attention_head_dim=16,
    num_attention_heads=2,
    joint_attention_dim=24,
    pooled_projection_dim=24,
    axes_dims_rope=(4, 6, 6),
)
model.compile_repeated_blocks(fullgraph=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses, times = [], []
for size in (4, 4, 6, 8, 4):
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    places = torch.stack([torch.zeros_like(rows), rows, columns], -1).flatten(0, 1)
    clean, noise = torch.randn(2, size * size, 8), torch.randn(2, size * size, 8)
    t, text, pooled = torch.rand(2), torch.randn(2, 5, 24), torch.randn(2, 24)
    start = time.perf_counter()
    noisy = torch.lerp(clean, noise, t[:, None, None])
    velocity = model(
        noisy, text, pooled, timestep=t, img_ids=places, txt_ids=torch.zeros(5, 3), return_dict=False
    )[0]
    loss = torch.nn.functional.mse_loss(velocity, noise - clean)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
