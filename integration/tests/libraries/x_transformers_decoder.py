"""x-transformers: an autoregressive decoder with rotary positions that is trained compiled, and then generates."""

import json
import time

import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.manual_seed(0)
model = TransformerWrapper(
    num_tokens=60,
    max_seq_len=32,
    attn_layers=Decoder(
        dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True, ff_glu=True, attn_flash=True
    ),
)
wrapper = AutoregressiveWrapper(model)
compiled = torch.compile(wrapper)
optimizer = torch.optim.Adam(wrapper.parameters(), lr=1e-3)
losses, times = [], []
for _ in range(4):
    tokens = torch.randint(0, 60, (4, 21))
    start = time.perf_counter()
    loss = compiled(tokens)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(wrapper.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
wrapper.eval()
wrapper.net = torch.compile(wrapper.net)
made = wrapper.generate(torch.randint(0, 60, (2, 4)), 6, temperature=0.0, cache_kv=True)
losses.append(float(made.sum()))
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
