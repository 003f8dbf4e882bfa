"""transformers: Trainer(torch_compile=True) with a small GPT-2."""

import json
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, 64, (24,), generator=generator)
        return {"input_ids": tokens, "labels": tokens, "unused": 1}


class Recording(Trainer):
    losses = []

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.losses.append(loss.item())
        return loss


torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        torch_compile=True,
        use_cpu=True,
        per_device_train_batch_size=4,
        max_steps=4,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = Recording(GPT2LMHeadModel(config), arguments, train_dataset=Tokens())
    trainer.train()
print(json.dumps({"losses": trainer.losses}))
