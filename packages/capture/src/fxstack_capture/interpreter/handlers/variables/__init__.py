"""Instructions that load and store variables.

``local_slots`` for locals and cells, ``names`` for globals and class bodies, ``imports`` for modules that are
loaded already. Each handler is ``(frame, operand) -> next step or None``. Begin with ``local_slots``.
"""
