"""Instruction handlers: small functions ``(frame, operand) -> next step or None``.

``versions`` lists, for each Python version, the handler and the operand of each opcode.
"""
