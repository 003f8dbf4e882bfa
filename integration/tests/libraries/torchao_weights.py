"""torchao: int8 weights, and a compiled model over them."""

import json

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).eval()
quantize_(model, Int8WeightOnlyConfig())
model = torch.compile(model, mode="max-autotune-no-cudagraphs")
with torch.no_grad():
    print(json.dumps({"losses": [model(torch.randn(4, 64)).sum().item() for _ in range(3)]}))
