"""ignite: a supervised trainer around a compiled model."""

import json

import torch
from ignite.engine import Events, create_supervised_trainer

torch.manual_seed(0)
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)))
trainer = create_supervised_trainer(
    model, torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.functional.mse_loss
)
losses = []
trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
trainer.run([(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(4)])
print(json.dumps({"losses": losses}))
