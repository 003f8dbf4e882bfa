"""Instructions that load and store variables.

``local_slots`` implements locals and cells. ``names`` implements globals and class bodies. ``imports``
implements imports of loaded modules. Each handler is ``(frame, operand) -> next step or None``. Begin with
``local_slots``.
"""
