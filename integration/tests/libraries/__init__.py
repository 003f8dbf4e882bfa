"""Programs as users of libraries around torch write them, and ``run``, which runs one. See ``test_libraries.py``."""
