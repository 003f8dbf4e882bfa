"""Everything that depends on the Python version. No other module looks at ``sys.version_info``.

One file per version states which opcode is executed by which handler, with which operand.
"""
