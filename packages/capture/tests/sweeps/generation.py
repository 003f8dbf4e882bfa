"""``generate()`` of transformers' models with a compiled ``forward``: tokens beside eager's, for several ways to decode.

python packages/capture/tests/sweeps/generation.py [--only llama]
"""

from __future__ import annotations

import argparse
import copy
import sys

import torch
import transformers
from architectures import auto, configuration
from beside import Tally, captured, difference, seeded

KINDS = (
    *("gpt2 llama mistral mixtral qwen2 qwen3 gemma2 phi gpt_neox opt bloom falcon olmo2 granite").split(),
    *("mamba stablelm cohere bart mbart pegasus").split(),
)
WAYS = {
    "greedy": {},
    "sampling": {"do_sample": True},
    "static cache": {"cache_implementation": "static"},
    "beams": {"num_beams": 2},
}


def model_of(kind: str) -> torch.nn.Module:
    """A tiny decoder, or encoder and decoder, that never stops early."""
    torch.manual_seed(1)
    names = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if kind in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES:
        names = auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    model = getattr(transformers, names[kind])(configuration(kind)).eval()
    model.config.use_cache = model.generation_config.use_cache = True
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model


def try_one(kind: str, way: str, tally: Tally) -> None:
    model = model_of(kind)
    alternate = copy.deepcopy(model)
    tokens = torch.randint(2, 99, (2, 5))

    def generate(model):
        settings = {"attention_mask": torch.ones_like(tokens), "max_new_tokens": 6, **WAYS[way]}
        return seeded(lambda: model.generate(tokens, **settings))

    expected = generate(model)
    if isinstance(expected, Exception):
        tally.counts["skipped"] += 1
        return
    alternate.forward, seen = captured(alternate.forward)
    wrong = difference(generate(alternate), expected)
    print(f"| {kind} | {way} | {wrong or 'equal'} | {seen.graphs} graphs, {len(seen.breaks)} breaks |")
    seen.graphs = 1 if seen.graphs else 0  # the first token and the others are graphs of their own
    tally.add(f"{kind} {way}", wrong, seen)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    tally = Tally()
    for kind in KINDS:
        for way in WAYS:
            if options.only in (None, kind):
                try_one(kind, way, tally)
    return tally.report()


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--only", "gpt2"]
        WAYS = dict([*WAYS.items()][:1])
    sys.exit(main())
