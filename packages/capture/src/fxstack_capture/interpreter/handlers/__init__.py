"""Instruction handlers: small functions ``(frame, operand) -> next step or None``.

A handler has the name of its opcode, or a name that begins with it; a docstring that begins with a version ("3.13:")
describes the handler of the opcode from this version on. ``versions`` has the handler and operand of each opcode.
"""
