"""torchtune: layers compiled one by one and a chunked loss, as its recipes do."""

import json

import torch
from torchtune.models.llama3_2 import llama3_2
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.training import compile_loss, compile_model

torch.manual_seed(0)
model = llama3_2(
    vocab_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    embed_dim=32,
    max_seq_len=32,
    intermediate_dim=64,
)
compile_model(model, verbose=False)
loss_fn = CEWithChunkedOutputLoss(num_output_chunks=4)
compile_loss(loss_fn, verbose=False)
model.set_num_output_chunks(loss_fn.num_output_chunks)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(3):
    tokens = torch.randint(0, 64, (2, 16))
    loss = loss_fn(model(tokens), tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps({"losses": losses}))
