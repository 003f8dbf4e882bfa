"""What each bytecode instruction does: small functions ``(frame, operand) -> next step or None``.

Which opcode of which Python version uses which handler, with which operand, is stated in
``versions``.
"""
