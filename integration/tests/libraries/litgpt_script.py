"""A script in the style of litgpt: a GPT with a KV cache, compiled for decoding."""

import json

import torch
from torch.nn import functional as F


class Block(torch.nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.norm, self.heads = torch.nn.LayerNorm(width), heads
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )
        self.register_buffer("k", torch.zeros(1, heads, length, width // heads), persistent=False)
        self.register_buffer("v", torch.zeros(1, heads, length, width // heads), persistent=False)

    def forward(self, x, mask, position):
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1)
        )
        self.k.index_copy_(2, position, k)
        self.v.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class GPT(torch.nn.Module):
    def __init__(self, vocabulary=64, width=32, length=32):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(vocabulary, width), torch.nn.Linear(width, vocabulary)
        self.blocks = torch.nn.ModuleList(Block(width, 4, length) for _ in range(2))
        self.register_buffer("mask", torch.tril(torch.ones(length, length, dtype=torch.bool))[None, None])

    def forward(self, tokens, position):
        x, mask = self.embedding(tokens), self.mask.index_select(2, position)
        for block in self.blocks:
            x = block(x, mask, position)
        return self.head(x)


@torch.inference_mode()
def generate(model, tokens, count):
    position = torch.arange(tokens.size(1))
    produced = []
    for _ in range(count):
        logits = model(tokens, position)[:, -1]
        tokens = logits.argmax(-1, keepdim=True)
        position = position[-1:] + 1
        produced.append(logits.sum().item())
    return produced


torch._dynamo.config.automatic_dynamic_shapes = True
torch._inductor.config.triton.unique_kernel_names = True
torch._inductor.config.coordinate_descent_tuning = True
torch.manual_seed(0)
model = torch.compile(GPT().eval(), mode="reduce-overhead", dynamic=True)
print(json.dumps({"losses": generate(model, torch.randint(0, 64, (1, 5)), 6)}))
