"""The thin wrappers that call compiled graphs with eager's semantics."""

from fxstack_functionalize.runtime.backward.backwards import Backwards, Variant
from fxstack_functionalize.runtime.forward.inference import inference_wrapper
from fxstack_functionalize.runtime.training import Pair, Program, Stages, compile_pair, training_wrapper

__all__ = [
    "Backwards",
    "Pair",
    "Program",
    "Stages",
    "Variant",
    "compile_pair",
    "inference_wrapper",
    "training_wrapper",
]
