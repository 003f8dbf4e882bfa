"""What a call of a compiled graph does around the graph.

Before it: checks of shared memory (``sharing``) and of saved-tensor hooks (``hooked``). After it: changes of
inputs (``mutation``) and outputs as the user gets them (``outputs``). Begin with ``outputs``.
"""
