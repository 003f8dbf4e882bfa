"""The thin wrappers that call compiled graphs with eager's semantics."""

from fxstack_functionalize.runtime.inference import inference_wrapper
from fxstack_functionalize.runtime.training import Stages, training_wrapper

__all__ = ["Stages", "inference_wrapper", "training_wrapper"]
