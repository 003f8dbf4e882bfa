"""Lightning: manual optimization of two networks that compile themselves in configure_model, and a model set up by Fabric."""

import json
import time
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", module="lightning")
softplus = nn.functional.softplus
losses, times = [], []


class GAN(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
        self.critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1))

    def configure_model(self):
        self.maker.compile()
        self.critic.compile()

    def training_step(self, batch, batch_idx):
        start = time.perf_counter()
        (real,), noise = batch, torch.randn(len(batch[0]), 4)
        for optimizer in self.optimizers():
            self.toggle_optimizer(optimizer)
            if optimizer is self.optimizers()[0]:
                loss = softplus(-self.critic(self.maker(noise))).mean()
            else:
                made = self.maker(noise).detach()
                loss = softplus(-self.critic(real)).mean() + softplus(self.critic(made)).mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.untoggle_optimizer(optimizer)
            losses.append(loss.item())
        times.append(time.perf_counter() - start)

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), 1e-2) for part in (self.maker, self.critic)]


lightning.seed_everything(0, verbose=False)
quiet = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}
data = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=8)
lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(GAN(), data)

fabric = lightning.Fabric(accelerator="cpu")
model = torch.compile(nn.Linear(4, 2))
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
for _ in range(3):
    loss = model(torch.randn(3, 4)).square().mean()
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps({"losses": losses, "first": times[0], "step": times[-1]}))
