"""Transformers: a compiled Mamba, which asks for optional packages while it runs, at two lengths."""

import json
import time

import torch
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0)
model = MambaForCausalLM(
    MambaConfig(vocab_size=100, hidden_size=32, state_size=4, num_hidden_layers=2, use_cache=False)
)
compiled = torch.compile(model.eval())
losses, times = [], []
with torch.no_grad():
    for length in (11, 11, 7, 11):
        tokens = torch.randint(0, 100, (2, length))
        start = time.perf_counter()
        logits = compiled(input_ids=tokens).logits
        times.append(time.perf_counter() - start)
        losses.append(logits.abs().sum().item())
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
