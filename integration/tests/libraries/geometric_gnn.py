"""torch_geometric: graph convolution and attention on a random graph."""

import json

import torch
from torch_geometric.nn import GATConv, GCNConv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(8, 16), GATConv(16, 4)

    def forward(self, x, edges):
        return self.second(torch.relu(self.first(x, edges)), edges)


torch.manual_seed(0)
model = torch.compile(Net())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x, edges, y = torch.randn(20, 8), torch.randint(0, 20, (2, 60)), torch.randint(0, 4, (20,))
losses = []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(x, edges), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps({"losses": losses}))
