"""Write threads as C: a function for a share of the points, and a caller that runs it on one or all threads.

Entering a parallel region of one thread costs half a microsecond, and pointers captured by the region lose
``restrict``. So the loops are in a function of their own; a call with little work, or in a program with one
thread, calls the function directly. In the function, ``threads`` is the size of the running team, and
``self`` is the number of the thread.

Teams start by a call of ``GOMP_parallel`` in torch's OpenMP runtime. clang translates ``#pragma omp parallel`` to calls of
another runtime, which may not be installed, and whose threads would compete with those of torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxstack_inductor.codegen.c.sharing import Sharing
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Kernel


def work_condition(kernel: Kernel, grain: int | None) -> str | None:
    """Return the C condition for sharing ``kernel``; None if there is always too little work."""
    if grain is None:
        return None
    work = product(loop.extent for loop in (*kernel.outer, *kernel.inner))
    count = work.as_int()
    if count is None:
        return f"threads > 1 && ({c_index(work)}) >= {grain}"
    return None if count < grain else "threads > 1"


def bounds_of_share(points: str, unit: str) -> list[str]:
    """Return C that declares ``first`` and ``last``: a share of ``points``, in blocks of ``unit``."""
    if unit == "1":
        return [f"const int64_t first = {points} * self / threads, last = {points} * (self + 1) / threads;"]
    return [
        f"const int64_t unit = {unit}, blocks = ({points} + unit - 1) / unit;",
        "const int64_t first = blocks * self / threads * unit;",
        f"const int64_t last = min_int64_t({points}, blocks * (self + 1) / threads * unit);",
    ]


def shared_heads(sharing: Sharing) -> Iterator[tuple[list[str], str, str]]:
    """Yield (declarations before it, its head, its first line) for each shared loop, outermost first.

    Together the loops visit this thread's share of all their points, in order. Loop ``k`` runs from
    ``begin<k>`` to ``end<k>``.
    """
    loops = sharing.loops[: sharing.shared]
    points = " * ".join(f"({loop.count})" for loop in loops)
    declared, before = bounds_of_share(points, sharing.unit), "0"
    for depth, loop in enumerate(loops):
        behind = " * ".join(f"({inner.count})" for inner in loops[depth + 1 :]) or "1"
        at = f"at{depth}"
        start, stop = f"begin{depth}", f"end{depth}"
        declared.append(f"const int64_t size{depth} = {behind};")
        declared.append(f"const int64_t {start} = {before} < first ? (first - {before}) / size{depth} : 0;")
        declared.append(
            f"const int64_t {stop} = last - {before} < ({loop.count}) * size{depth} ? "
            f"(last - {before} + size{depth} - 1) / size{depth} : {loop.count};"
        )
        step = loop.name if loop.step == "1" else f"{loop.name}_step"
        inside = f"const int64_t {at} = {before} + {step} * size{depth};"
        if loop.step != "1":
            inside += f" const int64_t {loop.name} = {step} * {loop.step};"
        yield declared, f"for (int64_t {step} = {start}; {step} < {stop}; {step}++)", inside
        declared, before = [], at


def threaded(head: str, condition: str, first: Sequence[str], body: Sequence[str]) -> str:
    """Return a function ``head`` (``void NAME(PARAMETERS)``); threads share ``body`` if ``condition`` is true.

    ``first`` runs once, before the loops.
    """
    name, listed, names = _parts(head)
    passed = listed[:-1]
    part, start = team(f"{name}_part", passed, body)
    alone = ", ".join([*names[:-1], "1", "0"])
    lines = [*first, f"  if (!({condition})) {{", f"    {name}_part({alone});", "    return;", "  }"]
    lines.append(f"  {start}")
    return f"{part}\n{definition(head, lines)}"


def team(name: str, passed: Sequence[str], body: Sequence[str]) -> tuple[str, str]:
    """Return the definition of a function ``name`` with the lines ``body``, and a statement that runs it on all threads.

    ``passed``: the parameters of the function before ``threads`` and ``self``. The statement passes variables of their names.
    """
    names = [name_of(parameter) for parameter in passed]
    listed = ", ".join([*passed, "const int64_t threads", "const int64_t self"])
    fields = " ".join(f"{parameter};" for parameter in passed)
    read = ", ".join(f"given->{field}" for field in names)
    member = f"  {name}({read}, omp_get_num_threads(), omp_get_thread_num());"
    parts = [
        definition(f"{LOCAL} void {name}({listed})", body),
        f"struct {name}_given {{ {fields} }};",
        definition(
            f"static void {name}_member(void* data)", [f"  const struct {name}_given* given = data;", member]
        ),
    ]
    given = f"(struct {name}_given){{{', '.join(names)}}}"
    return "\n".join(parts), f"GOMP_parallel({name}_member, &{given}, threads, 0);"


def either(head: str, condition: str, shared: Sequence[str], alone: Sequence[str]) -> str:
    """Return a function ``head`` that runs the lines ``shared`` if ``condition`` is true, else ``alone``."""
    name, listed, names = _parts(head)
    bodies = {"shared": shared, "alone": alone}
    parts = [definition(f"{LOCAL} void {name}_{k}({', '.join(listed)})", body) for k, body in bodies.items()]
    passed = ", ".join(names)
    lines = [f"  if ({condition}) {name}_shared({passed});", f"  else {name}_alone({passed});"]
    return "\n".join([*parts, definition(head, lines)])


KERNEL = "KERNEL"
"""Stands for the function's name until all functions of a file are known."""
LOCAL = "static __attribute__((noinline))"


def definition(head: str, body: Sequence[str]) -> str:
    """Return a C function of ``head`` and the lines ``body``."""
    return "\n".join([f"{head} {{", *body, "}"])


def _parts(head: str) -> tuple[str, list[str], list[str]]:
    """Return, from ``void NAME(PARAMETERS)``: the name, the parameters, and the parameters' names."""
    name, _, text = head.removesuffix(")").removeprefix("void ").partition("(")
    listed = text.split(", ")
    return name, listed, [name_of(parameter) for parameter in listed]


def name_of(parameter: str) -> str:
    """Return the name of a declared parameter, for example ``a0`` of ``const float* a0``."""
    return parameter.rsplit(maxsplit=1)[-1]
