"""Instructions that load and store variables.

``local_slots`` implements locals and cells, ``names`` globals and class bodies, ``imports`` imports of loaded
modules. Each handler is ``(frame, operand) -> next step or None``. Begin with ``local_slots``.
"""
