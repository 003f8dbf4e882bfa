"""Everything that depends on the Python version. No other module reads ``sys.version_info``.

Each version has a module with one row for each opcode: the handler, its operand, and the effect on the stack
(``lowering``). ``decode`` makes a program from a code object. Begin with ``instruction_sets``.
"""
