"""Lowering rules for elementwise operators, activations, powers and tensor creation.

Each result element depends only on the operands' elements at the same (broadcast) coordinates, or on the
coordinates. Modules here import ``ir``, ``lower.context``, ``lower.promotion`` and ``lower.registry``. Begin
with ``pointwise``, whose ``elementwise`` function the other rules use.
"""
