"""Transformers: a Trainer with label smoothing, activation checkpointing and torch_compile for a small GPT-2."""

import json
import tempfile
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


class Record(TrainerCallback):
    def __init__(self):
        self.losses, self.times = [], []

    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.times.append(time.perf_counter() - self.start)

    def on_log(self, args, state, control, logs=None, **__):
        self.losses += [logs[name] for name in ("loss", "grad_norm") if name in logs]


def collate(rows):
    length = max(len(row) for row in rows)
    ids = torch.stack([torch.nn.functional.pad(row, (0, length - len(row))) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    mask = (torch.arange(length) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


set_seed(0)
off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
config = GPT2Config(vocab_size=120, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False, **off)
model = GPT2LMHeadModel(config)
rows = [torch.randint(0, 120, (12 + 3 * (i % 7),)) for i in range(48)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=5, per_device_train_batch_size=4, logging_steps=1, report_to=[],
        use_cpu=True, torch_compile=True, save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        label_smoothing_factor=0.1, gradient_checkpointing=True, optim="adafactor",
    )  # fmt: skip
    record = Record()
    Trainer(model, arguments, data_collator=collate, train_dataset=rows, callbacks=[record]).train()
print(json.dumps({"losses": record.losses, "first": record.times[0], "step": record.times[-1]}))
