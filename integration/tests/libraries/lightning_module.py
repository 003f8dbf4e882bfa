"""Lightning: Trainer.fit of a compiled module, a checkpoint, and training that goes on from it."""

import json
import logging
import tempfile
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
        self.losses = []

    def training_step(self, batch, _index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, outputs, _batch, _index):
        self.losses.append(outputs["loss"].item())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(module, folder, path=None):
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(64, 16), torch.randn(64, 1))
    trainer = lightning.Trainer(
        max_epochs=2 if path else 1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(module, DataLoader(data, batch_size=16), ckpt_path=path)
    return trainer


torch.manual_seed(0)
module = Regression()
with tempfile.TemporaryDirectory() as folder:
    trainer = fit(torch.compile(module), folder)
    trainer.save_checkpoint(f"{folder}/last.ckpt")
    again = Regression()
    fit(torch.compile(again), folder, f"{folder}/last.ckpt")
print(json.dumps({"losses": module.losses + again.losses}))
