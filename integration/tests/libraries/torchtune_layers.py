"""As torchtune's recipes do: each layer compiles itself, activations are checkpointed, and the loss works on chunks."""

import json
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

F = nn.functional


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.sa_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.sa_norm(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class ChunkedCrossEntropy(nn.Module):
    def __init__(self, chunks):
        super().__init__()
        self.chunks = chunks
        self.compute_cross_entropy = torch.compile(self.compute_cross_entropy)

    def compute_cross_entropy(self, logits, labels):
        return F.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum")

    def forward(self, hidden, head, labels):
        total = (labels != -100).sum()
        parts = zip(hidden.chunk(self.chunks, 1), labels.chunk(self.chunks, 1), strict=True)
        return sum(self.compute_cross_entropy(head(h).flatten(0, 1), y.reshape(-1)) for h, y in parts) / total


torch.manual_seed(0)
embed, layers, head = nn.Embedding(90, 32), nn.ModuleList(Layer(32, 4) for _ in range(3)), nn.Linear(32, 90)
model = nn.ModuleList([embed, layers, head])
for layer in layers:
    layer.compile()
criterion = ChunkedCrossEntropy(4)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
losses, times = [], []
for _ in range(5):
    tokens = torch.randint(0, 90, (4, 17))
    start = time.perf_counter()
    x, labels = embed(tokens[:, :-1]), tokens[:, 1:].masked_fill(tokens[:, 1:] < 5, -100)
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    loss = criterion(x, head, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
