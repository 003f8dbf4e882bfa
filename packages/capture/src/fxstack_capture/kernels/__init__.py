"""Users' own Triton kernels: what they write to, and their launches as nodes of the graph."""
