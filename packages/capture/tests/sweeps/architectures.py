"""Architectures of transformers with tiny random configurations: forward and backward, captured beside eager.

    python packages/capture/tests/sweeps/architectures.py [--only bert] [--table]

One class per model type, found through the library's own tables; a type whose configuration does not take the
tiny sizes, or that needs inputs of its own, is skipped and counted as such.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from dataclasses import dataclass
from typing import Any

import torch
from beside import Tally, captured, difference, seeded
from torch.utils._pytree import tree_leaves

os.environ["HF_HUB_OFFLINE"] = "1"
import transformers
from transformers.models.auto import modeling_auto as auto

SIZES = {
    **dict.fromkeys(("vocab_size", "text_vocab_size"), 99),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim"), 32),
    **dict.fromkeys(("embedding_size", "encoder_hidden_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions"), 64),
    "num_key_value_heads": 2,
    "head_dim": 8,
    "d_kv": 8,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "image_size": 32,
    "patch_size": 8,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "decoder_start_token_id"), 0),
    "eos_token_id": 1,
    "use_cache": False,
}
TEXT = (
    *(
        "bert roberta distilbert albert electra deberta deberta-v2 mpnet camembert xlm-roberta convbert squeezebert"
    ).split(),
    *("fnet ernie rembert roformer nystromformer mobilebert funnel layoutlm megatron-bert ibert").split(),
    *(
        "gpt2 gpt_neo gpt_neox gptj opt bloom llama mistral mixtral qwen2 qwen3 qwen2_moe phi phi3 gemma gemma2"
    ).split(),
    *(
        "falcon mpt stablelm starcoder2 olmo olmo2 cohere codegen persimmon granite xglm biogpt ctrl openai-gpt"
    ).split(),
    *(
        "t5 mt5 bart mbart pegasus marian blenderbot blenderbot-small led m2m_100 plbart umt5 switch_transformers"
    ).split(),
    *("mamba rwkv glm nemotron smollm3 helium exaone4 deepseek_v3 gpt_oss").split(),
)
VISION = (
    *(
        "vit deit beit dinov2 swin convnext convnextv2 resnet regnet mobilenet_v1 mobilenet_v2 mobilevit"
    ).split(),
    *(
        "poolformer levit cvt segformer bit efficientnet vit_msn ijepa hiera pvt focalnet swinv2 data2vec-vision"
    ).split(),
)


AUDIO = ("wav2vec2", "hubert", "wavlm", "unispeech", "data2vec-audio")
_CONVOLUTIONS = {"conv_dim": (32, 32), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
_AUDIO = {
    **_CONVOLUTIONS,
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "mask_time_prob": 0.0,
    "num_conv_pos_embedding_groups": 2,
    "layerdrop": 0.0,
    "mask_feature_prob": 0.0,
}
_STAGES = {"depths": [1, 1], "num_heads": [2, 2], "embed_dim": 16}
_FOUR = {
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 1, 2, 2],
    "hidden_sizes": [8, 8, 16, 16],
    "hidden_size": None,
    "intermediate_size": None,
    "num_hidden_layers": None,
}
OWN: dict[str, dict[str, Any]] = {
    "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1], "d_head": 8},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_hidden_layers": None},
    **dict.fromkeys(("gptj", "codegen"), {"rotary_dim": 8}),
    "falcon": {"head_dim": None},
    "deepseek_v3": {
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
    },
    **dict.fromkeys(
        ("swin", "swinv2"), {**_STAGES, "num_attention_heads": None, "window_size": 4, "patch_size": 4}
    ),
    **dict.fromkeys(
        ("convnext", "convnextv2"),
        {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2, "patch_size": 4},
    ),
    "segformer": {**_FOUR, "depths": [1, 1, 1, 1], "patch_size": None},
    "pvt": {**_FOUR, "patch_size": None, "image_size": 64},
    **dict.fromkeys(AUDIO, _AUDIO),
}
"""What single types need beside or in place of ``SIZES``; None: the library's own default."""


@dataclass
class Case:
    model: torch.nn.Module
    batch: dict[str, Any]


def configuration(kind: str) -> Any:
    """The library's default configuration of a type, made tiny where attributes of known names allow it."""
    config = transformers.AutoConfig.for_model(kind)
    known = {name: size for name, size in SIZES.items() if hasattr(config, name)} | OWN.get(kind, {})
    return type(config)(**{name: size for name, size in known.items() if size is not None})


def build(kind: str) -> Case:
    config = configuration(kind)
    tokens = torch.randint(2, 99, (2, 12))
    batch: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if kind in VISION:
        size = getattr(config, "image_size", 32)
        size = size if isinstance(size, int) else 32
        channels = getattr(config, "num_channels", 3)
        batch = {"pixel_values": torch.randn(2, channels, size, size)}
    if kind in AUDIO:
        batch = {"input_values": torch.randn(2, 800)}
    cls = getattr(transformers, auto.MODEL_MAPPING_NAMES[kind])
    if (
        kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and kind not in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    ):
        cls = getattr(transformers, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind])
    if kind in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        batch["decoder_input_ids"] = tokens
    if kind == "fnet":
        del batch["attention_mask"]
    return Case(cls(config), batch)


def step(case: Case, call) -> list:
    """Outputs and gradients of one training step and the outputs of an evaluation."""
    case.model.train()
    outputs = [t for t in tree_leaves(call(**case.batch)) if isinstance(t, torch.Tensor)]
    sum(t.float().sum() for t in outputs if t.requires_grad).backward()
    gradients = {name: p.grad for name, p in case.model.named_parameters()}
    case.model.eval()
    with torch.no_grad():
        evaluated = [t for t in tree_leaves(call(**case.batch)) if isinstance(t, torch.Tensor)]
    return [[t.detach() for t in outputs], gradients, evaluated]


def try_one(kind: str, tally: Tally) -> str:
    torch.manual_seed(1)
    try:
        case = build(kind)
        alternate = Case(copy.deepcopy(case.model), case.batch)
    except Exception as error:
        return f"skipped: {type(error).__name__}: {error}"
    expected = seeded(lambda: step(case, case.model))
    if isinstance(expected, Exception):
        return f"skipped: {type(expected).__name__}: {expected}"
    compiled, seen = captured(alternate.model)
    wrong = difference(seeded(lambda: step(alternate, compiled)), expected, 1e-3, 1e-4)
    seen.graphs -= not seen.breaks  # training and evaluation are a graph each
    tally.add(kind, wrong, seen)
    shape = "one graph" if not seen.breaks else f"{len(seen.breaks)} break(s): {seen.breaks[0]}"
    return f"{'equal' if wrong is None else 'DIFFERENT'}, {shape}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    tally = Tally()
    for kind in (*TEXT, *VISION, *AUDIO):
        if options.only and kind != options.only:
            continue
        outcome = try_one(kind, tally).split("\n")[0][:120]
        print(f"| {kind} | {outcome} |" if options.table else f"{kind}: {outcome}", flush=True)
        tally.counts["skipped"] += outcome.startswith("skipped")
    return tally.report()


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--only", "bert"]
    sys.exit(main())
