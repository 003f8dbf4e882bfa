"""Transformers: generate with a static cache, which compiles the forward pass of a small Llama by compile_config."""

import json
import time

import torch
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
config = LlamaConfig(vocab_size=200, num_key_value_heads=2, max_position_embeddings=128, **sizes)
model = LlamaForCausalLM(config).eval()
prompt = torch.randint(3, 200, (2, 9))
compile_config = CompileConfig(fullgraph=True, mode="default", dynamic=False)
compile_config._compile_all_devices = True
options = {
    "max_new_tokens": 8,
    "do_sample": False,
    "cache_implementation": "static",
    "compile_config": compile_config,
    "pad_token_id": 0,
    "eos_token_id": None,
    "return_dict_in_generate": True,
    "output_scores": True,
}
losses, times = [], []
for _ in range(3):
    start = time.perf_counter()
    found = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    times.append(time.perf_counter() - start)
    losses += [
        float(found.sequences.sum()),
        torch.stack(found.scores).log_softmax(-1).max(-1).values.sum().item(),
    ]
    prompt = found.sequences[:, -9:]
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
