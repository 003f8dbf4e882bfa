"""Torch's global state, as the trace reads and changes it.

``state`` has grad mode, autocast and the default dtype. ``seeding`` and ``generator_draws`` handle random
number generators. ``torch_names`` guards the names of torch that a graph uses. Begin with ``state``.
"""
