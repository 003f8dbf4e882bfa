"""As LitGPT generates: a GPT with rotary positions and a key-value cache, and one compiled function for the next token."""

import json
import time

import torch
from torch import nn

F = nn.functional


class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, size = heads, width // heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("k", torch.zeros(1, heads, length, size), persistent=False)
        self.register_buffer("v", torch.zeros(1, heads, length, size), persistent=False)

    def forward(self, x, cos, sin, mask, position):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        q, k = q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
        self.k.index_copy_(2, position, k)
        self.v.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).flatten(2))


def rotate(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class GPT(nn.Module):
    def __init__(self, vocabulary=80, width=32, heads=4, layers=2, length=40):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.blocks = nn.ModuleList(Attention(width, heads, length) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        angles = torch.outer(
            torch.arange(length), 1e4 ** -(torch.arange(0, width // heads, 2) / (width // heads))
        )
        self.register_buffer("angles", torch.cat((angles, angles), -1))
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).tril())

    def forward(self, tokens, position):
        x, angles = self.embed(tokens), self.angles[position]
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x), angles.cos(), angles.sin(), self.mask[position], position)
        return self.head(x)


def next_token(model, position, tokens):
    logits = model(tokens, position)[:, -1]
    return logits.argmax(-1, keepdim=True), logits.log_softmax(-1).max()


torch.manual_seed(0)
model = GPT().eval()
decode = torch.compile(next_token, mode="reduce-overhead", fullgraph=True)
prefill = torch.compile(next_token, dynamic=True)
losses, times = [], []
with torch.inference_mode():
    for length in (5, 9, 14):
        token, score = prefill(model, torch.arange(length), torch.randint(0, 80, (1, length)))
        for place in range(length, length + 8):
            start = time.perf_counter()
            token, score = decode(model, torch.tensor([place]), token.clone())
            losses.append(token.item() + score.item())
            times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
