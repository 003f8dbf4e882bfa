"""Diffusers: a small conditional UNet with compiled repeated blocks, in the loop of a scheduler."""

import json
import time

import torch
from diffusers import DDIMScheduler, UNet2DConditionModel

torch.manual_seed(0)
unet = UNet2DConditionModel(
    sample_size=16,
    block_out_channels=(16, 32),
    layers_per_block=1,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=24,
    norm_num_groups=8,
    attention_head_dim=8,
).eval()
unet.compile_repeated_blocks(fullgraph=True)
scheduler = DDIMScheduler()
scheduler.set_timesteps(4)
latents, text = torch.randn(1, 4, 16, 16), torch.randn(2, 7, 24)
losses, times = [], []
for t in scheduler.timesteps:
    start = time.perf_counter()
    with torch.no_grad():
        noise = unet(torch.cat([latents] * 2), t, encoder_hidden_states=text).sample
    without, guided = noise.chunk(2)
    latents = scheduler.step(without + 3.0 * (guided - without), t, latents).prev_sample
    losses.append(latents.abs().sum().item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
