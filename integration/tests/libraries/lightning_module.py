"""Lightning: Trainer.fit of a module whose network was compiled, a checkpoint, and training that goes on from it."""

import json
import time
import warnings
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", module="lightning")


class Classifier(lightning.LightningModule):
    def __init__(self, width=32):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(16, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 4))
        self.losses, self.times = [], []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def on_train_batch_start(self, batch, batch_idx):
        self.start = time.perf_counter()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())
        self.times.append(time.perf_counter() - self.start)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def trainer(steps):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(max_steps=steps, accelerator="cpu", enable_checkpointing=False, **quiet)


lightning.seed_everything(0, verbose=False)
data = DataLoader(TensorDataset(torch.randn(32, 16), torch.randint(0, 4, (32,))), batch_size=8)
first = Classifier()
fit = trainer(4)
fit.fit(torch.compile(first), data)
fit.save_checkpoint("first.ckpt")

second = Classifier.load_from_checkpoint("first.ckpt")
trainer(6).fit(torch.compile(second), data, ckpt_path="first.ckpt", weights_only=False)
Path("first.ckpt").unlink()
losses = first.losses + second.losses
print(json.dumps({"losses": losses, "first": first.times[0], "step": first.times[-1]}))
