# ruff: noqa: INP001
"""Builds the C extension; everything else is in pyproject.toml. Without a C compiler the package installs
without it.
"""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/fxstack_capture/native")

setup(
    ext_modules=[
        Extension(
            "fxstack_capture._native",
            sources=sorted(str(path) for path in NATIVE.rglob("*.c")),
            depends=sorted(str(path) for path in NATIVE.rglob("*.h")),
            include_dirs=[str(NATIVE)],
            extra_compile_args=[
                "-O2",
                "-g0",
                "-std=gnu11",
                "-Wall",
                "-Wextra",
                "-Wno-missing-field-initializers",
                "-Wno-unused-parameter",
            ],
            optional=True,
        )
    ]
)
