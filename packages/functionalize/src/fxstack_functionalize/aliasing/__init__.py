"""What a captured graph mutates, and which of its tensors share memory.

``analyze`` reads both off the traced tensors; ``synthetic_bases`` and ``differentiable_bases`` handle inputs
that share memory; ``inplace``, ``overlap``, ``strided`` and ``non_dense_strides`` handle the operators whose
in-place semantics torch's functionalisation does not keep. The folder imports ``tracing`` and ``metadata``.
Begin with ``analyze``.
"""
