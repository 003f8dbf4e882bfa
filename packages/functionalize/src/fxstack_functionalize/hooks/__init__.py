"""Saved-tensor hooks traced into the forward's epilogue and the backward's prologue.

``pair`` traces one pair of pack and unpack hooks, ``identity`` decides whether a hook may be traced once,
``joint`` puts hooks into the joint graph before partitioning and ``inline`` into the two graphs after it. The
folder imports ``tracing``. Begin with ``pair``.
"""
