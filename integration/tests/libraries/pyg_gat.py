"""PyTorch Geometric: a GAT on one random graph, where some nodes are for training, compiled with its convolutions."""

import json
import time

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, Sequential

torch.manual_seed(0)
nodes = 40
data = Data(
    x=torch.randn(nodes, 12), edge_index=torch.randint(0, nodes, (2, 160)), y=torch.randint(0, 4, (nodes,))
)
data.train_mask = torch.arange(nodes) % 3 != 0
layers = [
    (GATConv(12, 8, heads=2), "x, edge_index -> x"),
    torch.nn.ELU(inplace=True),
    (GATConv(16, 4, heads=1, concat=False), "x, edge_index -> x"),
]
model = Sequential("x, edge_index", layers)
compiled = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
losses, times = [], []
for _ in range(5):
    start = time.perf_counter()
    optimizer.zero_grad()
    out = compiled(data.x, data.edge_index)
    loss = torch.nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
with torch.no_grad():
    losses.append(compiled(data.x, data.edge_index).abs().sum().item())
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
