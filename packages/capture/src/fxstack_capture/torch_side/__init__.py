"""Tensors, symbolic numbers and the FX graph of one trace. Entry point: ``TorchTracer``."""

from fxstack_capture.torch_side.recording.tracer import TorchTracer

__all__ = ["TorchTracer"]
