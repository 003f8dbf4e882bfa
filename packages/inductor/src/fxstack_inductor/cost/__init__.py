"""Predict the time of a schedule on a GPU from bytes, operations and launches, on any machine.

``devices`` describes GPUs, ``roofline`` turns bytes and operations into seconds, ``model`` predicts the steps of a
schedule; templates predict their own kernels. Modules here import ``ir``, ``tiling`` and ``schedule.plan``. Begin with
``model.predict``.
"""
