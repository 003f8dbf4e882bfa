"""Transformers: a Trainer with torch_compile=True that trains and evaluates a small BERT classifier."""

import json
import tempfile
import time

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Record(TrainerCallback):
    def __init__(self):
        self.losses, self.times = [], []

    def on_step_begin(self, *_, **__):
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.times.append(time.perf_counter() - self.start)

    def on_log(self, args, state, control, logs=None, **__):
        self.losses += [logs[name] for name in ("loss", "grad_norm", "eval_loss") if name in logs]


set_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
model = BertForSequenceClassification(BertConfig(vocab_size=100, num_labels=3, **sizes, **off))
tokens = torch.randint(0, 100, (40, 16))
rows = [
    {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": i % 3}
    for i, row in enumerate(tokens)
]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=5, per_device_train_batch_size=8, logging_steps=1, report_to=[],
        use_cpu=True, torch_compile=True, save_strategy="steps", save_steps=3, disable_tqdm=True,
    )  # fmt: skip
    record = Record()
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:16], callbacks=[record])
    trainer.train()
    trainer.evaluate()
print(json.dumps({"losses": record.losses, "first": record.times[0], "step": record.times[-1]}))
