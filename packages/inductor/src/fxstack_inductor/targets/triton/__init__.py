"""The target Triton: generated Triton kernels and host programs for NVIDIA GPUs.

``lower`` makes the text of a graph, ``artifact`` holds the text and predicts its times, ``load`` loads machine code and
links the host program. ``target`` is the class that the rest of the package uses. Modules here import the stages of the
package and ``targets.target``. Begin with ``lower``.
"""
