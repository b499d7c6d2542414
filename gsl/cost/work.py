"""The work of a call: the operations on numbers that it makes, and the bytes that it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from gsl.errors import WorkloadError
from gsl.front.base import Hinted
from gsl.graph import GETITEM, LEAVES, PARAM, TUPLE, Dim, Node, SymDim, TensorType, TupleType, Type
from gsl.graph.subgraph import Subgraph
from gsl.spec import OperatorName, Trait, spec_of

if TYPE_CHECKING:
    from gsl.workload import Workload


VIEWS: Final = frozenset((
    TUPLE, GETITEM, "reshape", "reshape_like", "transpose", "expand_dims", "squeeze", "split", "strided_slice",
    "broadcast_to", "nn.dropout",
))  # fmt: skip
"""The operators that move no data: the result shares the memory of its operand."""
_LAYERS: Final = ("nn.dense", "nn.conv1d", "nn.conv2d", "nn.conv3d")
"""The calls that add a bias on the way."""
_KERNELS: Final = frozenset((
    "matmul", "nn.batch_matmul", "nn.dense", "einsum", "nn.attention", "topk", "packed.dense", "packed.dense_add",
    "packed.conv2d", "packed.conv2d_add",
))  # fmt: skip
"""The operators, besides convolutions, for which compilers call kernels of libraries."""
_PASSES: Final[Mapping[str, int]] = {
    "nn.softmax": 5, "nn.log_softmax": 5, "nn.layer_norm": 6, "nn.rms_norm": 4, "nn.group_norm": 6,
    "nn.instance_norm": 6, "nn.l2_normalize": 4, "nn.batch_norm": 4, "nn.gelu": 10, "nn.silu": 6, "sigmoid": 5,
    "tanh": 6, "exp": 4, "erf": 8, "power": 8, "sin": 6, "cos": 6,
}  # fmt: skip
"""The approximate number of operations of an element, where it is more than one."""
_BITS: Final[Mapping[str, int]] = {
    "bool": 8, "float64": 64, "int64": 64, "complex64": 64, "complex128": 128, "float32": 32, "int32": 32,
    "uint32": 32, "uint64": 64, "float16": 16, "bfloat16": 16, "int16": 16, "uint16": 16,
}  # fmt: skip
"""The bits of an element; of the dtypes that are not here, eight."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a call: the number of operations, the dtype of the numbers, and the number of bytes that it moves."""

    operations: int
    dtype: str
    moved: int


class ExampleSizes:
    """The numbers that symbolic sizes stand for: those of the example inputs. A size that only a run tells counts as
    1."""

    def __init__(self, known: Mapping[str, int | None]) -> None:
        self.known = dict(known)

    @staticmethod
    def of(workload: Workload) -> ExampleSizes:
        """The sizes of a workload's example."""
        program = workload.program
        found: dict[str, int | None] = dict(program.size_hints) if isinstance(program, Hinted) else {}
        examples = [*(workload.example_inputs or ()), *[None] * len(workload.inputs)]
        for type, value in zip(workload.inputs.values(), examples):
            if isinstance(type, TensorType):
                numbers = getattr(value, "shape", (None,) * type.ndim)
                named = [(size, number) for size, number in zip(type.shape, numbers) if isinstance(size, SymDim)]
                numbered = [(str(size), _number(number)) for size, number in named if size.expr.is_Symbol]
                found.update({size: found.get(size) if number is None else number for size, number in numbered})
        return ExampleSizes(found)

    def number(self, size: Dim) -> int:
        """A size as a number. WorkloadError for one of an input of which there is no example."""
        if isinstance(size, int):
            return size
        numbers = {symbol: self.known.get(str(symbol), 1) for symbol in size.expr.free_symbols}
        unknown = [symbol for symbol, number in numbers.items() if number is None]
        if unknown:
            raise WorkloadError(
                f"the cost depends on the size {unknown[0]}, of which no example is known: load the program with "
                "example inputs"
            )
        return int(size.expr.subs(numbers))

    def elements(self, type: Type | None) -> int:
        """The number of numbers in a value. A value without a type counts as none."""
        if isinstance(type, TupleType):
            return sum(map(self.elements, type.fields))
        return 0 if type is None else prod(map(self.number, type.shape))

    def bytes(self, type: Type | None) -> int:
        """The number of bytes of memory that a value takes."""
        if isinstance(type, TupleType):
            return sum(map(self.bytes, type.fields))
        return 0 if type is None else self.elements(type) * _BITS.get(type.dtype, 8) // 8


def _number(size: Any) -> int | None:
    """A size of an example as a number. A symbol of torch is not asked for its own, which would be a guard."""
    return size if size is None or isinstance(size, int) else size.node.hint if hasattr(size, "node") else int(size)


def is_free(node: Node) -> bool:
    """True if a node does no work: a leaf, a view, a bias that the layer before it adds on the way."""
    if node.op in LEAVES:
        return True
    if node.op == "reshape" and node.operands[0].op == "transpose":
        return False  # the elements are not in this order
    if node.op == "cast" and node.dtype == node.operands[0].dtype:
        return True
    return node.op in VIEWS or (
        node.op == "nn.bias_add" and node.operands[0].op in _LAYERS and len(node.operands[0].users) == 1
    )


def is_loop(node: Node) -> bool:
    """True if a compiler makes a loop of what a node does, or nothing at all, and does not call a kernel that is there.
    """
    if is_free(node):
        return node.effect is None
    known = isinstance(node.op, str) and not isinstance(node.op, OperatorName) and spec_of(node.op) is not None
    return known and node.effect is None and node.op not in _KERNELS and "kernel_layout" not in node.attrs


def work(node: Node, sizes: ExampleSizes) -> Work:
    """The work of a call of a view. That of an opaque call with a weight counts as the product with it."""
    if is_free(node):
        return Work(0, "float32", 0)
    moved = sum(sizes.bytes(operand.type) for operand in node.operands) + sizes.bytes(node.type)
    if isinstance(node.op, Subgraph):
        inner = [work(part, sizes) for part in node.op.body.nodes]
        return Work(sum(part.operations for part in inner), _dtype(node), moved)
    if node.op in ("take", "gather"):
        moved = 2 * sizes.bytes(node.type)  # of the table, what is taken
    return Work(_operations(node, sizes), _dtype(node), moved)


def _dtype(node: Node) -> str:
    """The dtype in which a call computes: that of its first operand."""
    for part in (*node.operands, node):
        if part.dtype is not None:
            return part.dtype
    return "float32"


def _operations(node: Node, sizes: ExampleSizes) -> int:
    result = sizes.elements(node.type)
    shapes = [_shape(operand, sizes) for operand in node.operands]
    spec = spec_of(node.op)
    if spec is None:
        return _of_opaque(node, shapes, result)
    if node.op in ("nn.dense", "matmul", "nn.batch_matmul"):
        return 2 * result * _inner(node, shapes)
    if "kernel_layout" in node.attrs:
        return _of_convolution(node, shapes, result)
    if node.op == "nn.attention":
        query, key, value = shapes[:3]
        return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    if Trait.REDUCTION in spec.traits or (isinstance(node.op, str) and node.op.startswith("nn.") and "pool" in node.op):
        window: tuple[int, ...] = node.attrs.get("pool_size", ())
        return max(result, prod(shapes[0])) * prod(window)
    return result * _PASSES.get(str(node.op), 1)


def _shape(node: Node, sizes: ExampleSizes) -> tuple[int, ...]:
    return tuple(map(sizes.number, node.shape or ()))


def _inner(node: Node, shapes: Sequence[tuple[int, ...]]) -> int:
    """The length of the sums of a product."""
    first = shapes[0] or (1,)
    return first[-2] if node.attrs.get("transpose_a") else first[-1]


def _of_convolution(node: Node, shapes: Sequence[tuple[int, ...]], result: int) -> int:
    data, kernel, layout = shapes[0], shapes[1], str(node.attrs["kernel_layout"])
    if "output_padding" in node.attrs:
        return 2 * prod(data) * prod(kernel) // max(1, kernel[layout.index("I")])
    return 2 * result * prod(kernel) // max(1, kernel[layout.index("O")])


def _of_opaque(node: Node, shapes: Sequence[tuple[int, ...]], result: int) -> int:
    weights = [prod(shape) for part, shape in zip(node.operands, shapes) if part.op == PARAM and len(shape) > 1]
    if not weights or not node.shape:
        return result
    channels = next((shape[0] for part, shape in zip(node.operands, shapes) if part.op == PARAM and len(shape) > 1), 1)
    return max(result, 2 * result * max(weights) // max(1, channels))
