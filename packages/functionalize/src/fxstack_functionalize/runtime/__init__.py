"""The thin wrappers that call compiled graphs with eager's semantics."""

from fxstack_functionalize.runtime.inference import inference_wrapper
from fxstack_functionalize.runtime.training import (
    LazyBackward,
    Pair,
    Program,
    Stages,
    compile_pair,
    training_wrapper,
)

__all__ = [
    "LazyBackward",
    "Pair",
    "Program",
    "Stages",
    "compile_pair",
    "inference_wrapper",
    "training_wrapper",
]
