"""Model types that users bring on their first day: one small random configuration of each, for measuring a step.

A type is named by its class in transformers; ``SIZES`` are the words that most configurations share, and each entry adds
its own. ``build(name)`` gives the model and its keyword arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import transformers
import zoo

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

Batch = dict[str, torch.Tensor]
VOCABULARY, ROWS, LENGTH = 2000, 2, 64
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 384,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHARED_HEADS = {"num_key_value_heads": 2, "head_dim": 32}
IMAGE = {"image_size": 64, "patch_size": 8, "num_labels": 10}


def text() -> Batch:
    tokens = torch.randint(3, VOCABULARY, (ROWS, LENGTH))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def tokens() -> Batch:
    return {"input_ids": torch.randint(3, VOCABULARY, (ROWS, LENGTH))}


def pairs() -> Batch:
    made = torch.randint(3, VOCABULARY, (ROWS, LENGTH // 2))
    return {**text(), "decoder_input_ids": made}


def pixels() -> Batch:
    return {"pixel_values": torch.randn(ROWS, 3, 64, 64)}


def waves() -> Batch:
    return {"input_values": torch.randn(ROWS, 4000)}


def spectra() -> Batch:
    return {"input_values": torch.randn(ROWS, 64, 32)}


def text_and_pixels() -> Batch:
    return {**text(), **pixels()}


@dataclass(frozen=True)
class Entry:
    """``model`` and ``config`` are names in transformers; ``extra`` are words of the configuration beside ``SIZES``."""

    model: str
    config: str
    batch: Callable[[], Batch]
    extra: dict[str, Any] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=lambda: SIZES)


def _vision(**more: Any) -> dict[str, Any]:
    return {
        **{
            k: SIZES[k]
            for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        },
        **IMAGE,
        **more,
    }


_CONVOLVED = {"conv_dim": (32, 32, 32), "conv_stride": (5, 4, 2), "conv_kernel": (10, 8, 4)}
_AUDIO = {
    **_CONVOLVED,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}
_EXPERTS = {**SHARED_HEADS, "num_experts_per_tok": 2}

ENTRIES: dict[str, Entry] = {
    "mistral": Entry(
        "MistralForCausalLM",
        "MistralConfig",
        text,
        {**SHARED_HEADS, "sliding_window": 32, "use_cache": False},
    ),
    "qwen2": Entry("Qwen2ForCausalLM", "Qwen2Config", text, {"num_key_value_heads": 2, "use_cache": False}),
    "qwen3": Entry("Qwen3ForCausalLM", "Qwen3Config", text, {**SHARED_HEADS, "use_cache": False}),
    "gemma2": Entry(
        "Gemma2ForCausalLM", "Gemma2Config", text, {**SHARED_HEADS, "sliding_window": 32, "use_cache": False}
    ),
    "phi3": Entry("Phi3ForCausalLM", "Phi3Config", text, {"use_cache": False}),
    "neox": Entry("GPTNeoXForCausalLM", "GPTNeoXConfig", text, {"use_cache": False}),
    "opt": Entry(
        "OPTForCausalLM", "OPTConfig", text, {"ffn_dim": 384, "word_embed_proj_dim": 128, "use_cache": False}
    ),
    "bloom": Entry("BloomForCausalLM", "BloomConfig", text, {"n_layer": 2, "n_head": 4, "use_cache": False}),
    "mixtral": Entry(
        "MixtralForCausalLM", "MixtralConfig", text, {**_EXPERTS, "num_local_experts": 4, "use_cache": False}
    ),
    "qwen3 moe": Entry(
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        text,
        {**_EXPERTS, "num_experts": 4, "moe_intermediate_size": 128, "use_cache": False},
    ),
    "mamba": Entry("MambaForCausalLM", "MambaConfig", tokens, {"state_size": 16, "use_cache": False}),
    "mamba2": Entry(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        tokens,
        {
            "num_heads": 8,
            "head_dim": 32,
            "state_size": 16,
            "n_groups": 1,
            "chunk_size": 16,
            "use_cache": False,
        },
    ),
    "roberta": Entry("RobertaForMaskedLM", "RobertaConfig", text),
    "distilbert": Entry(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        text,
        {"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 384},
    ),
    "deberta": Entry(
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        text,
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 32},
    ),
    "modernbert": Entry(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        text,
        {"local_attention": 32, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "albert": Entry("AlbertForMaskedLM", "AlbertConfig", text, {"embedding_size": 64}),
    "bart": Entry(
        "BartForConditionalGeneration",
        "BartConfig",
        pairs,
        {
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_ffn_dim": 384,
            "decoder_ffn_dim": 384,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "use_cache": False,
        },
    ),
    "swin": Entry(
        "SwinForImageClassification",
        "SwinConfig",
        pixels,
        {
            "embed_dim": 32,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "image_size": 64,
            "patch_size": 4,
            "num_labels": 10,
        },
        {},
    ),
    "dinov2": Entry("Dinov2ForImageClassification", "Dinov2Config", pixels, {}, _vision(mlp_ratio=3)),
    "segformer": Entry(
        "SegformerForImageClassification",
        "SegformerConfig",
        pixels,
        {
            "hidden_sizes": [16, 32, 64, 128],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 4, 4],
            "num_labels": 10,
        },
        {},
    ),
    "mobilenet": Entry(
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        pixels,
        {"depth_multiplier": 0.35, "num_labels": 10},
        {},
    ),
    "efficientnet": Entry(
        "EfficientNetForImageClassification",
        "EfficientNetConfig",
        pixels,
        {"width_coefficient": 0.25, "depth_coefficient": 0.5, "hidden_dim": 320, "num_labels": 10},
        {},
    ),
    "regnet": Entry(
        "RegNetForImageClassification",
        "RegNetConfig",
        pixels,
        {
            "embedding_size": 16,
            "hidden_sizes": [16, 32, 64, 128],
            "depths": [1, 1, 1, 1],
            "groups_width": 8,
            "num_labels": 10,
        },
        {},
    ),
    "mobilevit": Entry(
        "MobileViTForImageClassification",
        "MobileViTConfig",
        pixels,
        {
            "hidden_sizes": [32, 48, 64],
            "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64],
            "num_labels": 10,
            "image_size": 64,
        },
        {},
    ),
    "wav2vec2": Entry("Wav2Vec2ForCTC", "Wav2Vec2Config", waves, {**_AUDIO, "vocab_size": 32}),
    "hubert": Entry("HubertForCTC", "HubertConfig", waves, {**_AUDIO, "vocab_size": 32}),
    "ast": Entry(
        "ASTForAudioClassification",
        "ASTConfig",
        spectra,
        {
            "max_length": 64,
            "num_mel_bins": 32,
            "patch_size": 8,
            "frequency_stride": 8,
            "time_stride": 8,
            "num_labels": 10,
        },
        {k: v for k, v in SIZES.items() if k != "vocab_size"},
    ),
    "clip": Entry(
        "CLIPModel",
        "CLIPConfig",
        text_and_pixels,
        {
            "text_config": {**SIZES, "projection_dim": 64},
            "vision_config": _vision(projection_dim=64),
            "projection_dim": 64,
        },
        {},
    ),
}


@dataclass(frozen=True)
class Images:
    """A network of convolutions at its real size, of transformers or of ``zoo.py``."""

    model: str
    config: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    side: int = 224

    def build(self) -> nn.Module:
        if not self.config:
            return getattr(zoo, self.model)(32)
        return getattr(transformers, self.model)(getattr(transformers, self.config)(**self.extra))

    def batch(self, count: int) -> Batch:
        images = torch.randn(count, 3, self.side, self.side)
        return {"pixel_values" if self.config else "x": images}


_B0 = {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280}
IMAGES = {
    "resnet-50": Images("ResNetForImageClassification", "ResNetConfig"),
    "mobilenet-v2": Images("MobileNetV2ForImageClassification", "MobileNetV2Config"),
    "efficientnet-b0": Images("EfficientNetForImageClassification", "EfficientNetConfig", _B0),
    "convnext-tiny": Images("ConvNextForImageClassification", "ConvNextConfig"),
    "unet": Images("UNet", side=128),
    "swin-tiny": Images("SwinForImageClassification", "SwinConfig"),
}
"""By name. ``build`` takes the number of images, too: ``resnet-50 x4``."""


def build(name: str, seed: int = 0) -> tuple[nn.Module, Batch]:
    """A model with seeded weights, and its keyword arguments."""
    torch.manual_seed(seed)
    kind, _, count = name.partition(" x")
    if count:
        return IMAGES[kind].build(), IMAGES[kind].batch(int(count))
    entry = ENTRIES[name]
    config = getattr(transformers, entry.config)(**{**entry.common, **entry.extra})
    return getattr(transformers, entry.model)(config), entry.batch()
