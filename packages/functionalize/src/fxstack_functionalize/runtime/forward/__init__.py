"""What a call of a compiled graph does around the graph.

Before it: checks of shared memory (``sharing``) and thread state (``modes``). After it: new values of mutated
inputs (``mutation``, ``relayout``) and outputs as the user gets them (``outputs``, ``parts``). Begin with
``outputs``.
"""
