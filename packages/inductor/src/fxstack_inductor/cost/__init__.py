"""Predict the time of a schedule on a GPU from bytes, operations and launches, on any machine.

``devices`` describes GPUs, ``roofline`` turns bytes and operations into seconds, ``model`` predicts steps of a
schedule (kernels of templates by their own functions). Modules here import ``ir``, ``tiling`` and ``schedule.plan``. Begin with ``model.predict``.
"""
