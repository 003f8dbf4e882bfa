"""Transformers: the training of a small compiled mixture of experts, with padded batches."""

import json
import time

import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
experts = {"num_local_experts": 4, "output_router_logits": True}
model = MixtralForCausalLM(
    MixtralConfig(vocab_size=100, num_key_value_heads=2, use_cache=False, **sizes, **experts)
)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses, times = [], []
for _ in range(4):
    tokens = torch.randint(0, 100, (2, 11))
    mask = torch.ones_like(tokens)
    mask[0, 8:] = 0
    start = time.perf_counter()
    out = compiled(input_ids=tokens, attention_mask=mask, labels=tokens)
    out.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses += [out.loss.item(), out.aux_loss.item()]
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
