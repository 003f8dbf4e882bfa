"""peft: LoRA adapters in a compiled BERT."""

import json

import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)
config = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    hidden_dropout_prob=0,
    attention_probs_dropout_prob=0,
)
model = get_peft_model(
    BertForSequenceClassification(config),
    LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"]),
)
model = torch.compile(model)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
losses = []
for _ in range(3):
    loss = model(input_ids=torch.randint(0, 64, (4, 12)), labels=torch.randint(0, 2, (4,))).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps({"losses": losses}))
