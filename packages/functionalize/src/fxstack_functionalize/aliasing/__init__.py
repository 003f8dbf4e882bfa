"""What a captured graph mutates, and which of its tensors share memory.

``analyze`` reads both off the traced tensors; ``synthetic_bases`` handles inputs that share memory without a
common autograd history; ``metamutation`` handles changes of an input's metadata. Begin with ``analyze``.
"""
