"""A recipe in the style of torchtune: layers compiled in place one by one, and a compiled loss in chunks."""

import json

import torch


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm, self.mlp = torch.nn.RMSNorm(width), torch.nn.Linear(width, width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + torch.nn.functional.silu(self.mlp(x))


class ChunkedLoss(torch.nn.Module):
    def chunk(self, logits, targets):
        return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")

    def forward(self, logits, targets):
        pairs = zip(logits.chunk(4, dim=1), targets.chunk(4, dim=1), strict=True)
        return sum(self.chunk(a.flatten(0, 1), b.flatten()) for a, b in pairs) / targets.numel()


torch.manual_seed(0)
embedding, head = torch.nn.Embedding(64, 32), torch.nn.Linear(32, 64)
layers = torch.nn.ModuleList(Layer(32) for _ in range(2))
for layer in layers:
    layer.compile(backend="inductor")
loss_fn = ChunkedLoss()
loss_fn.chunk = torch.compile(loss_fn.chunk, backend="inductor")
parameters = [*embedding.parameters(), *layers.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-2, fused=True)
losses = []
for _ in range(3):
    tokens = torch.randint(0, 64, (2, 16))
    x = embedding(tokens)
    for layer in layers:
        x = layer(x)
    loss = loss_fn(head(x), tokens)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps({"losses": losses}))
