"""PyTorch Geometric: a compiled GIN with batch norms, on graphs of several sizes."""

import json
import time

import torch
from torch_geometric.nn import GIN, GraphNorm, global_add_pool

torch.manual_seed(0)
model, norm = GIN(8, 16, num_layers=2, out_channels=16, norm="batch_norm"), GraphNorm(16)
head = torch.nn.Linear(16, 2)
compiled = torch.compile(
    lambda x, edges, batch: head(global_add_pool(norm(model(x, edges), batch), batch, 2)), dynamic=True
)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.01)
losses, times = [], []
for nodes in (20, 24, 30, 20):
    x, edges = torch.randn(nodes, 8), torch.randint(0, nodes, (2, 4 * nodes))
    batch = (torch.arange(nodes) >= nodes // 2).long()
    start = time.perf_counter()
    loss = torch.nn.functional.cross_entropy(compiled(x, edges, batch), torch.tensor([0, 1]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
