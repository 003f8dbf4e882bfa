"""Inference with frozen weights: what follows from parameters alone is computed once, and again when a parameter has changed."""
