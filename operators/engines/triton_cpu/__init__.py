"""A Triton backend named "cpu" that compiles nothing: it lets vLLM on a CPU use Triton's interpreter.

vLLM's CPU build keeps Triton only when a backend of that name is registered, and its engine runs in spawned processes,
so a stub put into `triton.backends` by the parent is missing where it is needed. An entry point (group
`triton.backends`, name `cpu`, see setup.py) is found by every process. Triton imports `.compiler` and `.driver` below
this package; both import nothing but Triton's abstract classes. The driver never reports itself active, so a GPU
machine keeps its own.
"""

__all__: list[str] = []
