"""Predict the time of a schedule on a GPU from bytes, operations and launches, on any machine.

``devices`` describes GPUs, ``model`` predicts steps of a schedule, ``products`` decides between kernel and
library product. Modules here import ``ir``, ``tiling`` and ``schedule.plan``. Begin with ``model.predict``.
"""
