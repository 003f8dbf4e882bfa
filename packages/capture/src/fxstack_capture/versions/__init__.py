"""Everything that depends on the Python version. No other module looks at ``sys.version_info``.

One file per version states the facts of each opcode: which handler executes it, with which operand, and what it takes from
the stack and leaves there.
"""
