"""transformers: generate with a static cache and a CompileConfig."""

import json

import torch
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
model = LlamaForCausalLM(config).eval()
model.generation_config.compile_config = CompileConfig(fullgraph=False, dynamic=None)
model.generation_config.compile_config._compile_all_devices = True
tokens = torch.randint(3, 64, (2, 5))
outputs = model.generate(
    tokens,
    attention_mask=torch.ones_like(tokens),
    cache_implementation="static",
    max_new_tokens=6,
    do_sample=False,
    pad_token_id=0,
)
print(json.dumps({"losses": outputs.flatten().tolist()}))
