"""Instruction handlers: small functions ``(frame, operand) -> next step or None``.

The name of a handler is the name of its opcode, or begins with it. If a handler serves only some Python
versions, its docstring names them. ``versions`` has the handler and operand of each opcode.
"""
