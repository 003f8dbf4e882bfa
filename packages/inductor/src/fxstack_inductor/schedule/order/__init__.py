"""The order of a schedule: groups and calls by their dependencies (``units``), and parts that repeat (``equal_parts``).

Modules here import ``ir``, ``lower``, ``schedule.fusion`` and ``schedule.steps``. Begin with ``units.in_order``.
"""
