"""PyTorch Geometric: a compiled GCN on a random graph, with batches of graphs of different sizes."""

import json
import time

import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = GCNConv(8, 16), GCNConv(16, 16), nn.Linear(16, 3)

    def forward(self, x, edge_index, batch, size: int):
        x = self.first(x, edge_index).relu()
        x = self.second(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch, size))


def graph(nodes, label):
    return Data(
        x=torch.randn(nodes, 8), edge_index=torch.randint(0, nodes, (2, 3 * nodes)), y=torch.tensor(label)
    )


torch.manual_seed(0)
model = GCN()
compiled = torch.compile(model, dynamic=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses, times = [], []
for step in range(5):
    data = Batch.from_data_list([graph(6 + (step + i) % 4, i % 3) for i in range(6)])
    start = time.perf_counter()
    loss = nn.functional.cross_entropy(compiled(data.x, data.edge_index, data.batch, data.num_graphs), data.y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    times.append(time.perf_counter() - start)
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
