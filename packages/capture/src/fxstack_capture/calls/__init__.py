"""Who runs a call: a rule, the interpreter, torch's recorder or CPython itself.

``dispatch`` decides; ``rules`` holds what calls of library functions mean while tracing; ``policy`` says
which C code may run for real and ``native_run`` runs it; ``polyfills`` replaces C code that calls functions
of the program. The folder imports ``objects``, ``torch_side`` and ``interpreter``. Begin with ``dispatch``.
"""
