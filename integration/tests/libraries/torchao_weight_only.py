"""torchao: int8 weight-only quantization of a small network, which is then compiled."""

import json
import time

import torch
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


torch.manual_seed(0)
layers = [Attention(64, 4), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), Attention(64, 4)]
model = nn.Sequential(*layers, nn.Linear(64, 32)).eval()
quantize_(model, Int8WeightOnlyConfig())
model = torch.compile(model, fullgraph=True)
losses, times = [], []
with torch.no_grad():
    for _ in range(4):
        x = torch.randn(4, 10, 64)
        start = time.perf_counter()
        y = model(x)
        times.append(time.perf_counter() - start)
        losses += [y.abs().sum().item(), y[0, 0, 0].item()]
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
