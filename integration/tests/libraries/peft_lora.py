"""PEFT: LoRA adapters on a small compiled Llama; then the adapters are merged."""

import json
import time

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
base = LlamaForCausalLM(LlamaConfig(vocab_size=100, num_key_value_heads=2, use_cache=False, **sizes))
lora = LoraConfig(
    r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
)
model = get_peft_model(base, lora)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
losses, times = [], []
for _ in range(5):
    tokens = torch.randint(0, 100, (4, 12))
    start = time.perf_counter()
    loss = compiled(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
losses.append(sum(value.abs().sum().item() for value in get_peft_model_state_dict(compiled).values()))
merged = torch.compile(model.merge_and_unload())
with torch.no_grad():
    losses.append(merged(input_ids=torch.arange(20).view(2, 10)).logits.abs().sum().item())
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
