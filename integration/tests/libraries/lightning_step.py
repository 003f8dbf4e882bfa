"""Lightning: a module that compiles its own training_step and validation_step, with the best checkpoint loaded at the end."""

import json
import tempfile
import time
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", module="lightning")


class Regressor(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 8, 3, padding=1), nn.SiLU(), nn.Flatten(), nn.LazyLinear(1))
        self.net(torch.zeros(1, 1, 20))
        self.training_step = torch.compile(self.training_step)
        self.validation_step = torch.compile(self.validation_step)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x).squeeze(-1), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.l1_loss(self.net(x).squeeze(-1), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Record(lightning.Callback):
    def __init__(self):
        self.losses, self.times = [], []

    def on_train_batch_start(self, *_):
        self.start = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, *_):
        self.times.append(time.perf_counter() - self.start)
        self.losses.append(outputs["loss"].item())


lightning.seed_everything(0, verbose=False)
x = torch.randn(24, 1, 20)
data = DataLoader(TensorDataset(x, x.mean((1, 2))), batch_size=8)
record, model = Record(), Regressor()
with tempfile.TemporaryDirectory() as folder:
    best = ModelCheckpoint(dirpath=folder, monitor="val_loss")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", callbacks=[record, best], **quiet)
    trainer.fit(model, data, data)
    loaded = Regressor.load_from_checkpoint(best.best_model_path)
losses = [*record.losses, best.best_model_score.item(), loaded.net(x).sum().item()]
print(json.dumps({"losses": losses, "first": record.times[0], "step": record.times[-1]}))
