"""The models that tests and benchmarks share: real architectures, random weights, two sizes.

``TINY`` is for tests (milliseconds in eager), ``BENCH`` takes 5-50 ms a step on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

Batch = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A model and its input. ``loss`` maps (model, batch) to a scalar; ``forward`` to the raw output."""

    name: str
    model: nn.Module
    batch: Batch
    loss: Callable[[nn.Module, Batch], torch.Tensor]

    def forward(self) -> Any:
        return self.model(**self.batch)


TINY = "tiny"
BENCH = "bench"


def _pick(size: str, tiny: int, bench: int) -> int:
    return tiny if size == TINY else bench


def _text_dims(size: str) -> dict[str, int]:
    return {
        "vocab": _pick(size, 99, 4000),
        "width": _pick(size, 32, 192),
        "layers": _pick(size, 2, 3),
        "heads": 4,
        "inner": _pick(size, 64, 768),
        "batch": _pick(size, 2, 2),
        "length": _pick(size, 12, 64),
    }


def _output_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(**batch).loss


def _tokens(d: dict[str, int]) -> torch.Tensor:
    return torch.randint(0, d["vocab"], (d["batch"], d["length"]))


def bert(size: str) -> Case:
    d = _text_dims(size)
    config = transformers.BertConfig(
        vocab_size=d["vocab"],
        hidden_size=d["width"],
        num_hidden_layers=d["layers"],
        num_attention_heads=d["heads"],
        intermediate_size=d["inner"],
        max_position_embeddings=128,
    )
    tokens = _tokens(d)
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    return Case("bert", transformers.BertForMaskedLM(config), batch, _output_loss)


def gpt2(size: str) -> Case:
    d = _text_dims(size)
    config = transformers.GPT2Config(
        vocab_size=d["vocab"],
        n_embd=d["width"],
        n_layer=d["layers"],
        n_head=d["heads"],
        n_positions=128,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    tokens = _tokens(d)
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # transformers warns (once a process) when it has to guess
    return Case("gpt2", model, {"input_ids": tokens, "labels": tokens}, _output_loss)


def llama(size: str) -> Case:
    d = _text_dims(size)
    config = transformers.LlamaConfig(
        vocab_size=d["vocab"],
        hidden_size=d["width"],
        num_hidden_layers=d["layers"],
        num_attention_heads=d["heads"],
        num_key_value_heads=2,
        intermediate_size=d["inner"],
        max_position_embeddings=128,
        use_cache=False,
    )
    tokens = _tokens(d)
    return Case(
        "llama", transformers.LlamaForCausalLM(config), {"input_ids": tokens, "labels": tokens}, _output_loss
    )


def t5(size: str) -> Case:
    d = _text_dims(size)
    config = transformers.T5Config(
        vocab_size=d["vocab"],
        d_model=d["width"],
        d_kv=d["width"] // d["heads"],
        d_ff=d["inner"],
        num_layers=2,
        num_heads=d["heads"],
        decoder_start_token_id=0,
        use_cache=False,
    )
    tokens = _tokens(d)
    return Case(
        "t5",
        transformers.T5ForConditionalGeneration(config),
        {"input_ids": tokens, "labels": tokens},
        _output_loss,
    )


def vit(size: str) -> Case:
    config = transformers.ViTConfig(
        image_size=_pick(size, 32, 96),
        patch_size=_pick(size, 8, 16),
        hidden_size=_pick(size, 32, 192),
        num_hidden_layers=_pick(size, 2, 4),
        num_attention_heads=4,
        intermediate_size=_pick(size, 64, 768),
        num_labels=10,
        problem_type="single_label_classification",  # else the first call sets it, and the second recompiles
    )
    pixels = torch.randn(_pick(size, 2, 4), 3, config.image_size, config.image_size)
    labels = torch.randint(0, 10, (pixels.shape[0],))
    return Case(
        "vit",
        transformers.ViTForImageClassification(config),
        {"pixel_values": pixels, "labels": labels},
        _output_loss,
    )


def convnext(size: str) -> Case:
    config = transformers.ConvNextConfig(
        hidden_sizes=[8, 16] if size == TINY else [32, 64, 128],
        depths=[1, 1] if size == TINY else [2, 2, 2],
        num_stages=_pick(size, 2, 3),
        num_labels=10,
        problem_type="single_label_classification",  # else the first call sets it, and the second recompiles
    )
    pixels = torch.randn(2, 3, _pick(size, 32, 64), _pick(size, 32, 64))
    labels = torch.randint(0, 10, (2,))
    return Case(
        "convnext",
        transformers.ConvNextForImageClassification(config),
        {"pixel_values": pixels, "labels": labels},
        _output_loss,
    )


def resnet(size: str) -> Case:
    config = transformers.ResNetConfig(
        embedding_size=_pick(size, 8, 32),
        hidden_sizes=[8, 16] if size == TINY else [32, 64, 128],
        depths=[1, 1] if size == TINY else [2, 2, 2],
        layer_type="basic",
        num_labels=10,
        problem_type="single_label_classification",  # else the first call sets it, and the second recompiles
    )
    pixels = torch.randn(_pick(size, 2, 4), 3, _pick(size, 32, 64), _pick(size, 32, 64))
    labels = torch.randint(0, 10, (pixels.shape[0],))
    return Case(
        "resnet",
        transformers.ResNetForImageClassification(config),
        {"pixel_values": pixels, "labels": labels},
        _output_loss,
    )


def whisper(size: str) -> Case:
    config = transformers.WhisperConfig(
        vocab_size=_pick(size, 99, 4000),
        num_mel_bins=_pick(size, 16, 80),
        d_model=_pick(size, 32, 128),
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=_pick(size, 64, 512),
        decoder_ffn_dim=_pick(size, 64, 512),
        max_source_positions=_pick(size, 16, 100),
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        use_cache=False,
    )
    features = torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions)
    labels = torch.randint(3, config.vocab_size, (2, _pick(size, 10, 32)))
    return Case(
        "whisper",
        transformers.WhisperForConditionalGeneration(config),
        {"input_features": features, "labels": labels},
        _output_loss,
    )


class MLP(nn.Module):
    """Linear layers with batch norm, GELU and dropout."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU(), nn.Dropout(0.1))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class UNet(nn.Module):
    """Two levels down and up with skip connections, group norm and SiLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = self._block(3, width)
        self.down = self._block(width, 2 * width)
        self.bottom = self._block(2 * width, 4 * width)
        self.up_bottom = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge_down = self._block(4 * width, 2 * width)
        self.up_down = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge_stem = self._block(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    @staticmethod
    def _block(inner: int, outer: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(4, outer), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = self.stem(x)
        down = self.down(nn.functional.max_pool2d(stem, 2))
        bottom = self.bottom(nn.functional.max_pool2d(down, 2))
        down = self.merge_down(torch.cat([self.up_bottom(bottom), down], dim=1))
        stem = self.merge_stem(torch.cat([self.up_down(down), stem], dim=1))
        return self.head(stem)


class LSTMLoop(nn.Module):
    """An LSTM cell in a Python loop over time."""

    def __init__(self, inner: int, width: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(inner, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.new_zeros(x.shape[0], self.cell.hidden_size)
        state = (hidden, hidden)
        outputs = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(self.head(state[0]))
        return torch.stack(outputs, dim=1)


def _square_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(**batch).square().mean()


def mlp(size: str) -> Case:
    width = _pick(size, 16, 512)
    x = torch.randn(_pick(size, 8, 128), width)
    return Case("mlp", MLP(width, _pick(size, 2, 6)), {"x": x}, _square_loss)


def unet(size: str) -> Case:
    side = _pick(size, 16, 64)
    x = torch.randn(_pick(size, 1, 2), 3, side, side)
    return Case("unet", UNet(_pick(size, 4, 16)), {"x": x}, _square_loss)


def lstm(size: str) -> Case:
    x = torch.randn(_pick(size, 2, 16), _pick(size, 5, 24), _pick(size, 8, 64))
    return Case("lstm", LSTMLoop(_pick(size, 8, 64), _pick(size, 16, 256)), {"x": x}, _square_loss)


CASES: dict[str, Callable[[str], Case]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "vit": vit,
    "convnext": convnext,
    "resnet": resnet,
    "whisper": whisper,
    "mlp": mlp,
    "unet": unet,
    "lstm": lstm,
}


def build(name: str, size: str = TINY, seed: int = 0) -> Case:
    """A case with seeded weights and inputs."""
    torch.manual_seed(seed)
    return CASES[name](size)
