"""Transformers: prefill and decoding of four small models, which write to static caches, one of them with experts."""

import json
import time

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    StaticCache,
)

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
shared = {"vocab_size": 100, "num_key_value_heads": 2, "max_position_embeddings": 64, **sizes}
configs = [
    LlamaConfig(**shared),
    MistralConfig(**shared, sliding_window=None),
    MixtralConfig(**shared, sliding_window=None, num_local_experts=4),
    GPT2Config(
        vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    ),
]
losses, times = [], []
for config in configs:
    model = AutoModelForCausalLM.from_config(config).eval()
    compiled = torch.compile(model, dynamic=False)
    cache = StaticCache(config=config, max_cache_len=24)
    tokens = torch.randint(0, 100, (2, 9))
    positions = torch.arange(9)
    with torch.no_grad():
        for _ in range(4):
            start = time.perf_counter()
            out = compiled(
                input_ids=tokens, position_ids=positions[None], past_key_values=cache, use_cache=True
            )
            times.append(time.perf_counter() - start)
            losses.append(out.logits.abs().sum().item())
            tokens, positions = out.logits[:, -1:].argmax(-1), positions[-1:] + 1
    losses.append(sum(layer.keys.abs().sum().item() for layer in cache.layers))
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
