"""Diffusers: a Stable Diffusion pipeline, whose UNet and decoder are compiled as the documentation of the library says."""

import json
import time

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

torch.manual_seed(0)
sizes = {"norm_num_groups": 8, "layers_per_block": 1}
unet = UNet2DConditionModel(
    sample_size=8,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=32,
    attention_head_dim=8,
    **sizes,
)
vae = AutoencoderKL(
    block_out_channels=(16, 16),
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    sample_size=16,
    **sizes,
)
text = CLIPTextConfig(
    vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
)
parts = {"vae": vae, "text_encoder": CLIPTextModel(text), "unet": unet, "scheduler": DDIMScheduler()}
absent = {"tokenizer": None, "safety_checker": None, "feature_extractor": None}
pipe = StableDiffusionPipeline(**parts, **absent, requires_safety_checker=False)
pipe.set_progress_bar_config(disable=True)
pipe.unet.to(memory_format=torch.channels_last)
pipe.unet = torch.compile(pipe.unet, fullgraph=True)
pipe.vae.decode = torch.compile(pipe.vae.decode, fullgraph=True)
losses, times = [], []
for seed in range(3):
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randn(1, 7, 32, generator=generator)
    options = {
        "num_inference_steps": 2,
        "generator": generator,
        "output_type": "pt",
        "height": 16,
        "width": 16,
    }
    start = time.perf_counter()
    images = pipe(prompt_embeds=prompt, negative_prompt_embeds=torch.zeros_like(prompt), **options).images
    losses.append(images.sum().item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
