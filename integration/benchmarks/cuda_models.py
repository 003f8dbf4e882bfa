"""The models of ``cuda_compare.py``: those of the zoos, and six of the size that users train, as steps on a device.

``NAMES`` are a folder and a name: ``zoo/gpt2`` (size ``bench``), ``wide/swin``, ``real/gpt2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers
import wide
import wide_zoo
import zoo

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Real:
    """``model`` and ``config`` are names in transformers, ``extra`` are words of the configuration."""

    model: str
    config: str
    batch: Callable[[], Batch]
    extra: dict[str, Any]


def _text(vocabulary: int, rows: int, length: int) -> Callable[[], Batch]:
    def batch() -> Batch:
        tokens = torch.randint(3, vocabulary, (rows, length))
        return {"input_ids": tokens, "labels": tokens.clone()}

    return batch


def _images(rows: int) -> Callable[[], Batch]:
    return lambda: {"pixel_values": torch.randn(rows, 3, 224, 224), "labels": torch.randint(0, 10, (rows,))}


_CLASSES = {"num_labels": 10, "problem_type": "single_label_classification"}
_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "use_cache": False,
}
_T5 = {
    "d_model": 768,
    "d_ff": 3072,
    "num_layers": 12,
    "num_heads": 12,
    "use_cache": False,
    "decoder_start_token_id": 0,
}

REAL: dict[str, Real] = {
    "gpt2": Real("GPT2LMHeadModel", "GPT2Config", _text(50257, 8, 1024), {"use_cache": False}),
    "vit": Real("ViTForImageClassification", "ViTConfig", _images(32), _CLASSES),
    "resnet": Real("ResNetForImageClassification", "ResNetConfig", _images(32), _CLASSES),
    "llama": Real("LlamaForCausalLM", "LlamaConfig", _text(32000, 2, 2048), _LLAMA),
    "bert": Real("BertForMaskedLM", "BertConfig", _text(30522, 16, 512), {}),
    "t5": Real("T5ForConditionalGeneration", "T5Config", _text(32128, 8, 512), _T5),
}
NAMES = (
    *(f"zoo/{name}" for name in zoo.CASES),
    *(f"real/{name}" for name in REAL),
    *(f"wide/{name}" for name in wide_zoo.ENTRIES),
)


@dataclass(frozen=True)
class Case:
    """A model on its device with its input; ``loss`` maps a callable like the model, and the input, to a scalar."""

    model: nn.Module
    batch: dict[str, Any]
    loss: Callable[[Any, dict[str, Any]], torch.Tensor]

    def step(self, call: Any, mode: str) -> None:
        """One training step (without an optimizer) or one inference step of ``call``, which computes the model."""
        if mode == "infer":
            with torch.no_grad():
                call(**self.batch)
            return
        self.model.zero_grad(set_to_none=True)
        self.loss(call, self.batch).backward()


def _real(name: str) -> Case:
    """The model is made on the device: over the stand-ins, memory that nothing writes to costs the host nothing."""
    entry = REAL[name]
    config = getattr(transformers, entry.config)(**entry.extra)
    with torch.device("cuda"):
        model = getattr(transformers, entry.model)(config)
    return Case(model, entry.batch(), lambda call, batch: call(**batch).loss)


def _small(folder: str, name: str) -> Case:
    if folder == "wide":
        model, batch = wide_zoo.build(name)
        return Case(model, batch, lambda call, batch: wide._loss(call(**batch)))
    case = zoo.build(name, zoo.BENCH)
    return Case(case.model, case.batch, case.loss)


def build(name: str, dtype: torch.dtype, mode: str) -> Case:
    """A case on the GPU, with floating point in ``dtype``."""
    folder, _, short = name.partition("/")
    case = _real(short) if folder == "real" else _small(folder, short)
    model = case.model.to("cuda", dtype).train(mode == "train")
    batch = {
        key: value.to("cuda", dtype if value.is_floating_point() else value.dtype)
        if isinstance(value, torch.Tensor)
        else value
        for key, value in case.batch.items()
    }
    return Case(model, batch, case.loss)
