"""Transformers: a compiled Llama with flex attention, for batches of padded prompts of several lengths."""

import json
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
config = LlamaConfig(
    vocab_size=100, num_key_value_heads=2, use_cache=False, attn_implementation="flex_attention", **sizes
)
model = LlamaForCausalLM(config).eval()
compiled = torch.compile(model)
losses, times = [], []
with torch.no_grad():
    for length in (16, 16, 20, 24):
        tokens = torch.randint(0, 100, (2, length))
        mask = torch.ones_like(tokens)
        mask[0, :3] = 0
        start = time.perf_counter()
        logits = compiled(input_ids=tokens, attention_mask=mask).logits
        times.append(time.perf_counter() - start)
        losses.append(logits[:, 4:].abs().sum().item())
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
