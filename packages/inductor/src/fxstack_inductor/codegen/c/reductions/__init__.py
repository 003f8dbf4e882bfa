"""Reductions and scans as C.

``combine`` has the identity and the step of each reduction; ``lanes`` reduces along rows, ``columns`` across
memory, ``scan`` carries running values. Begin with ``combine``.
"""
