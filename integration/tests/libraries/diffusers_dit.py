"""Diffusers: a small DiT transformer that compiles itself as a whole, trained for some steps."""

import json
import time

import torch
from diffusers import DDPMScheduler, DiTTransformer2DModel
from diffusers.training_utils import EMAModel

torch.manual_seed(0)
model = DiTTransformer2DModel(
    num_attention_heads=2,
    attention_head_dim=8,
    in_channels=4,
    num_layers=3,
    sample_size=8,
    num_embeds_ada_norm=100,
)
model.compile()
model.train()
scheduler = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
average = EMAModel(model.parameters(), decay=0.9)
losses, times = [], []
for _ in range(4):
    start = time.perf_counter()
    clean, noise = torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8, 8)
    t, labels = torch.randint(0, 100, (2,)), torch.randint(0, 100, (2,))
    predicted = model(scheduler.add_noise(clean, noise, t), timestep=t, class_labels=labels).sample
    loss = torch.nn.functional.mse_loss(predicted, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    average.step(model.parameters())
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
