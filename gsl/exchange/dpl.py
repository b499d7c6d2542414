"""Patterns of Relax's dataflow pattern language as sources over canonical operators, and matches as the small modules
of Relax about which those patterns and their checks are asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import tvm
from tvm import ir, relax, tirx
from tvm.relax.dpl import pattern as theirs
from tvm.relax.transform import FuseOpsByPattern

from gsl import pat
from gsl.errors import FrontEndError
from gsl.exchange.imported import patterns_of, refusal
from gsl.front.core.handle import handle_of, is_tensor_leaf
from gsl.front.relax.function import RelaxFunction
from gsl.front.relax.groups import COMPOSITE, PRIMITIVE, SYMBOL, Outliner, composite
from gsl.front.relax.handle import RelaxLeaf
from gsl.front.relax.load import Loaded
from gsl.front.relax.opaque import Caller
from gsl.front.relax.program import RelaxProgram, from_module
from gsl.front.relax.spellings import FIELD_READERS, READERS
from gsl.front.relax.types import Dims, FunctionScope, to_relax
from gsl.front.relax.write import RelaxCallWriter
from gsl.front.tvm.spellings import function
from gsl.front.tvm.tensors import to_tvm
from gsl.graph import CONST, GETITEM, INPUT, LEAVES, PARAM, Graph, Node
from gsl.graph.subgraph import Subgraph, call_type, outlined
from gsl.match import Match
from gsl.pat import Pattern
from gsl.spec.natives import TVMFunction
from gsl.walk import reached

_SIZE: Final = 6
"""The size of the axes that are tried; three fields of a split can be made of it."""
_BIAS: Final = (1, _SIZE, 1, 1)
"""The shape of a vector that is added along the channels of a convolution."""
_BASES: Final = (*[(_SIZE,) * rank for rank in (2, 4, 3, 1)], _BIAS)
"""The shapes that all variables have, but for one of them."""
_SHAPES: Final = (*_BASES, ())
_VOLUMES: Final = ((_SIZE,) * 5,)
"""The shapes that are tried where Relax takes none of the others."""
_MAKERS: Final[Mapping[str, int]] = {"matmul": 2, "nn.conv2d": 4}
"""The calls whose results are read with what is added to them, with the ranks of their operands."""
_CONSTANTS: Final = ((), _BIAS, *_MAKERS)
"""The parts that are tried with constants, too."""
_DTYPES: Final = ("float32", "float16", "int8", "int32")
_FIRST: Final = 40
"""The value of the constant that stands for the first leaf; those for others follow."""
_CHOICES: Final = 64
"""The largest number of ways to choose among the alternatives of a pattern."""
_GIVEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "relax.expand_dims": {"axis": 0}, "relax.nn.batch_norm": {"axis": 1, "training": False},
    "relax.nn.layer_norm": {"axes": [-1]}, "relax.nn.pad": {"pad_width": [0, 0, 0, 0, 1, 1, 1, 1]},
    "relax.split": {"indices_or_sections": 3, "axis": -1},
    "relax.strided_slice": {"axes": [0], "begin": [0], "end": [1]},
}  # fmt: skip
"""The arguments that calls of an operator need besides tensors."""
_VECTORS: Final = frozenset(("relax.nn.batch_norm",))
"""The operators of which all operands but the first are vectors."""
_AROUND: Final = (theirs.TypePattern, theirs.DataTypePattern, theirs.ShapePattern, theirs.AttrPattern)
"""Patterns that ask something more of what another one matches."""

_LOOKING: Final = frozenset(("relax.add",))
"""The operators among those of ``LOOKS_AT`` that are not read together with what they look at."""

DplLeaves = dict[Any, Pattern]
"""The patterns of what a pattern is given."""


class DplSource:
    """The source of a rule for a pattern. Raises ExchangeError if there is none, with the reason."""

    def __init__(self, title: str, root: Any, leaves: DplLeaves | None = None) -> None:
        self.title = title
        self.root = root
        self.leaves: DplLeaves = {} if leaves is None else leaves
        self.added: set[Any] = set()
        """The operands of calls whose reading depends on what makes them."""
        self.vectors: set[Any] = set()
        found: dict[Any, Pattern] = {}
        for chosen in _choices(root):
            self._collect(root, chosen)
            for program in self._programs(chosen):
                view = program.load()
                named = {f"x{number}": leaf for number, leaf in enumerate(self.leaves.values())}
                form = _form(view.outputs[0], named)
                if form not in found and not any(_is_read(node.op) for node in view.nodes):
                    leaf = partial(_leaf, leaves=named)
                    (found[form],) = patterns_of(view, leaf, with_attributes=False)
        if not found:
            raise refusal(title, "no types are known with which Relax takes its calls")
        self.output = next(iter(found.values())) if len(found) == 1 else pat.Alt(*found.values())

    def _collect(self, root: Any, chosen: Mapping[Any, int]) -> None:
        """Note what the pattern is given, with a pattern for each."""
        work = [root]
        while work:
            part = _inner(work.pop(), chosen)
            if isinstance(part, theirs.CallPattern) and self._is_unread(part):
                if part not in self.leaves:
                    self.leaves[part] = self._unread(part, chosen)
            elif isinstance(part, theirs.CallPattern):
                work.extend(reversed(part.args))
                self.added.update(part.args if part.op.expr.name in _LOOKING else ())
                self.vectors.update(part.args[1:] if part.op.expr.name in _VECTORS else ())
            elif isinstance(part, theirs.TupleGetItemPattern):
                work.append(part.tuple)
            elif isinstance(part, theirs.TuplePattern):
                work.extend(reversed(part.fields))
            else:
                self.leaves.setdefault(part, pat.Wildcard())

    def _is_unread(self, part: Any) -> bool:
        """True for a call of an operator that has no canonical reading, or of a function of any name."""
        op = getattr(part.op, "expr", None)
        if not isinstance(op, ir.Op):
            raise refusal(self.title, f"it calls {part.op}, which is no operator")
        return not _is_read(op)

    def _unread(self, part: Any, chosen: Mapping[Any, int]) -> Pattern:
        """The pattern of such a call, whose operands are read by themselves."""
        op, args = part.op.expr, list(part.args)
        if op.name == "relax.call_tir":
            op, args = pat.AnyOp(), list(getattr(args[1], "fields", args[1:]))
        operands = []
        for arg in args:
            inner = _inner(arg, chosen)
            if isinstance(inner, (theirs.CallPattern, theirs.TupleGetItemPattern, theirs.TuplePattern)):
                operands.append(DplSource(self.title, arg, self.leaves).output)
            else:
                operands.append(self.leaves.setdefault(inner, pat.Wildcard()))
        return pat.Call(op, *operands)

    def _programs(self, chosen: Mapping[Any, int]) -> Iterator[RelaxProgram]:
        """The pattern as a program, with the first dtype and all shapes with which Relax takes it."""
        for bases, dtype in itertools.product((_BASES, _VOLUMES), _DTYPES):
            found = False
            for types in self._types(bases):
                program = _Trial(self.root, chosen, self.leaves, self.vectors, dtype, types).program()
                if program is not None:
                    found = True
                    yield program
            if found:
                return

    def _types(self, bases: Sequence[tuple[int, ...]]) -> Iterator[_Types]:
        """The types that are tried: all leaves have one shape, but one has another or a maker, or is a constant."""
        for shape in bases:
            yield _Types(shape)
            for leaf in [leaf for leaf in self.leaves if leaf not in self.vectors]:
                others: tuple[Any, ...] = (*_SHAPES, *(_MAKERS if leaf in self.added else ()))
                for other in others:
                    if other != shape:
                        yield _Types(shape, leaf, other)
                    if other in _CONSTANTS:
                        yield _Types(shape, leaf, other, True)


def _leaf(node: Node, leaves: Mapping[str, Pattern]) -> Pattern | None:
    known = leaves.get(_name(node))
    return pat.Wildcard() if known is None and node.op in LEAVES else known


def _form(node: Node, names: Mapping[str, Any]) -> Any:
    """A view without types and attributes."""
    if _name(node) in names:
        return _name(node)
    own = node.attrs["index"] if node.op == GETITEM else None
    return (node.op, own, *[_form(operand, names) for operand in node.operands])


def _is_read(op: Any) -> bool:
    """True for an operator of Relax that has a canonical reading, for some types at least."""
    return isinstance(op, ir.Op) and (op.name in READERS or op.name in FIELD_READERS)


def _name(node: Node) -> str:
    """The name of a node; of a constant, that of the leaf that it stands for."""
    if node.op not in (PARAM, CONST):
        return node.name
    return f"x{int(np.ravel(np.asarray(node.attrs['value']))[0]) - _FIRST}"


def _choices(root: Any) -> Iterator[dict[Any, int]]:
    """The ways to choose a side of each alternative of a pattern."""
    both = [part for part in reached([root], _parts) if isinstance(part, theirs.OrPattern)]
    for sides in itertools.islice(itertools.product((0, 1), repeat=len(both)), _CHOICES):
        yield dict(zip(both, sides))


def _parts(part: Any) -> list[Any]:
    match part:
        case theirs.CallPattern():
            return [part.op, *part.args]
        case theirs.TuplePattern():
            return list(part.fields)
        case theirs.TupleGetItemPattern():
            return [part.tuple]
        case theirs.OrPattern() | theirs.AndPattern():
            return [part.left, part.right]
    return [part.pattern] if isinstance(part, _AROUND) else []


def _inner(part: Any, chosen: Mapping[Any, int]) -> Any:
    """The part of a pattern that tells of calls."""
    while True:
        if isinstance(part, theirs.OrPattern):
            part = part.right if chosen[part] else part.left
        elif isinstance(part, theirs.AndPattern):
            part = part.right if isinstance(part.left, theirs.WildcardPattern) else part.left
        elif isinstance(part, _AROUND):
            part = part.pattern
        else:
            return part


# ---------------------------------------------------------------- functions by trial


class _Types(NamedTuple):
    """The shape of all leaves but one, which has another shape or is made by a call. With ``constant``, that one is a
    constant; where it is made by a call, all others are."""

    shape: tuple[int, ...]
    leaf: Any = None
    other: Any = ()
    constant: bool = False


class _Trial:
    """The pattern as a function on leaves of some types."""

    def __init__(
        self, root: Any, chosen: Mapping[Any, int], leaves: DplLeaves, vectors: set[Any], dtype: str, types: _Types
    ) -> None:  # fmt: skip
        self.root, self.chosen, self.types, self.dtype = root, chosen, types, dtype
        self.made: dict[Any, Any] = {}
        self.bindings: list[Any] = []
        self.name = ""
        """The name of the leaf that is made by a call."""
        for number, part in enumerate(leaves):
            own = (_SIZE,) if part in vectors else types.other if part is types.leaf else types.shape
            if isinstance(own, str):
                self.name = f"x{number}"
            elif types.constant and (part is types.leaf) != isinstance(types.other, str):
                self.made[part] = relax.const(np.full(own, _FIRST + number, dtype=dtype))
            else:
                self.made[part] = relax.Var(f"x{number}", relax.TensorType(own, dtype))

    def program(self) -> RelaxProgram | None:
        """The program; ``None`` where Relax does not take the calls."""
        params = [made for made in self.made.values() if isinstance(made, relax.Var)]
        shape = (_SIZE,) * _MAKERS.get(str(self.types.other), 0)
        given = [relax.Var(name, relax.TensorType(shape, self.dtype)) for name in "ab"]
        try:
            if self.name:
                self.made[self.types.leaf] = self._bound(function(relax.op, self.types.other)(*given), self.name)
            last = self._expr(self.root)
            result = relax.Var("result", last.ty)
            block = relax.DataflowBlock([*self.bindings, relax.VarBinding(result, last)])
            body = relax.BlockBuilder().normalize(relax.SeqExpr([block], result))
            return from_module(relax.Function([*params, *given], body, None, True).with_attr(SYMBOL, "main"))
        except Exception:  # Relax raises anything for a call that it does not take
            return None

    def _bound(self, value: Any, name: str = "call") -> Any:
        """The variable to which a call is bound."""
        value = relax.BlockBuilder().normalize(value)
        var = relax.DataflowVar(name, value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def _expr(self, part: Any) -> Any:
        part = _inner(part, self.chosen)
        if part not in self.made:
            self.made[part] = self._new(part)
        return self.made[part]

    def _new(self, part: Any) -> Any:
        if isinstance(part, theirs.TuplePattern):
            return relax.Tuple([self._expr(field) for field in part.fields])
        if isinstance(part, theirs.TupleGetItemPattern):
            return self._bound(relax.TupleGetItem(self._expr(part.tuple), max(part.index, 0)))
        op, args = part.op.expr, [self._expr(arg) for arg in part.args]
        kinds = [str(argument.type_info) for argument in op.arguments]
        for place, kind in enumerate(kinds[: len(args)]):
            if "Shape" in kind:
                args[place] = self._sizes(op, args[0])
            elif "Prim" in kind:
                args[place] = float(place)
        given = {"dtype": self.dtype} if op.name == "relax.astype" else _GIVEN.get(op.name, {})
        if op.name == "relax.strided_slice":  # all its arguments but the first are numbers
            args, given = args[:1], {**given, "strides": [1] if len(args) == 5 else None}
        return self._bound(function(relax.op, op.name.removeprefix("relax."))(*args, **given))

    @staticmethod
    def _sizes(op: Any, given: Any) -> list[int]:
        """A shape among the arguments of an operator, for what it is given."""
        own = [int(size) for size in given.ty.shape.values]
        if op.name.startswith("relax.image"):
            return own[-2:]
        return [*own[:-1], 1, own[-1]] if len(own) == 3 else [int(np.prod(own))]



# ---------------------------------------------------------------- matches as modules of Relax


class RelaxExcerpt:
    """The function of the group that a match is, in a module. What the match does not cover is a parameter, or a
    constant where it is one.

    FrontEndError for calls that Relax can't say.
    """

    def __init__(self, match: Match) -> None:
        if _is_part(match):
            raise FrontEndError("a part of what one call of Relax is read as is no call by itself")
        body, operands = outlined(match.inner, match.outputs, Graph([], [], lambda *_: None))
        dims = _NamedDims()
        arguments = [_argument(node, dims) for node in operands]
        self.passed = [node for node, arg in zip(operands, arguments) if isinstance(arg, relax.Var)]
        """The nodes that the parameters stand for."""
        names = {node.op.name for node in match.inner if isinstance(node.op, TVMFunction) and not node.op.packed}
        self.module = tvm.IRModule({name: tirx.PrimFunc([], tirx.Evaluate(0)) for name in sorted(names)})
        native = relax.Function([arg for arg in arguments if isinstance(arg, relax.Var)], relax.Tuple([]))
        function = RelaxFunction(native)
        loaded = Loaded(function, FunctionScope(function, dims))
        caller = Caller(self.module, dims)
        outliner = Outliner(self.module, lambda node: relax.const(to_tvm(node.attrs["value"])))
        call = Node(Subgraph("excerpt", body), operands, {}, call_type(body), name="excerpt")
        outliner.call(call, arguments, lambda value: RelaxCallWriter(loaded, caller, value, outliner).write)
        (made,) = outliner.functions.values()
        self.function = made.without_attr(COMPOSITE).without_attr(PRIMITIVE).with_attr(SYMBOL, "main")
        self.module.update_func(tvm.ir.GlobalVar("main"), self.function)


def _is_part(match: Match) -> bool:
    """True if a match covers some nodes of the reading of a call, and not the others."""
    covered = {node: handle for node in match.inner if (handle := handle_of(node)) is not None}
    whole = {handle.reading for handle in covered.values() if handle.is_root}
    if any(handle.reading not in whole for handle in covered.values()):
        return True
    rest = [(handle, handle_of(operand)) for node, handle in covered.items() for operand in node.operands
            if operand not in covered and operand.op != CONST]  # fmt: skip
    return any(other is not None and other.reading is handle.reading for handle, other in rest)


class _NamedDims(Dims):
    """Sizes of which each symbol is a variable of its own."""

    def _prim(self, expr: Any) -> Any:
        if expr.is_Symbol and expr not in self._back:
            self._back[expr] = tirx.Var(str(expr), "int64")
        return super()._prim(expr)


def _argument(node: Node, dims: Dims) -> Any:
    leaf = node.native
    if isinstance(leaf, RelaxLeaf) and not isinstance(leaf.expr, relax.Var):
        return leaf.expr
    if is_tensor_leaf(node) and node.op == CONST:
        return relax.const(to_tvm(node.attrs["value"]))
    if node.type is None:
        raise FrontEndError(f"the type of %{node.name} is not known")
    return relax.Var(node.name or "x", to_relax(node.type, dims))


def is_fused(pattern: Any, match: Match) -> bool | str:
    """True if ``FuseOpsByPattern`` makes one group of just what a match covers, otherwise the reason why not."""
    try:
        fused = FuseOpsByPattern([pattern], bind_constants=True)(RelaxExcerpt(match).module)
    except FrontEndError as error:
        return str(error)
    except Exception as error:  # whatever a check reads that is not there
        return f"{pattern.name}: {type(error).__name__}: {error}"
    bindings = [binding for block in fused["main"].body.blocks for binding in block.bindings]
    calls = [binding.value for binding in bindings if isinstance(binding.value, relax.Call)]
    groups = [call for call in calls if isinstance(call.op, tvm.ir.GlobalVar)
              and composite(fused.functions.get(call.op)) is not None]  # fmt: skip
    if not groups:
        return f"{pattern.name}: its pattern or its check says no"
    return len(calls) == 1 or f"{pattern.name}: its pattern matches a part of this only"


def replacement(pattern: Any, rewriter: Any, match: Match) -> list[Pattern] | str:
    """The pattern that a rewriter makes of a match, or the reason why it makes none."""
    excerpt = RelaxExcerpt(match)
    values = relax.analysis.get_var2val(excerpt.function)
    old = values[excerpt.function.body.body]
    found = pattern.extract_matched_expr(old, values)
    if found is None:
        return "its pattern is written in other calls"
    new = rewriter(old, dict(found.items()))
    if not isinstance(new, relax.Expr):
        return f"the rewriter returns {new!r:.60}, and not an expression of Relax"
    return "its rewriter leaves this as it is" if old.same_as(new) else _made(excerpt, new)


def _made(excerpt: RelaxExcerpt, new: Any) -> list[Pattern]:
    """An expression on the values of an excerpt, as a target."""
    body, result = excerpt.function.body, relax.Var("result", excerpt.function.ret_ty)
    blocks = [*body.blocks, relax.DataflowBlock([relax.VarBinding(result, new)])]
    whole = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, result))
    function = relax.Function(excerpt.function.params, whole, None, True).with_attr(SYMBOL, "main")
    functions = {var.name_hint: other for var, other in excerpt.module.functions.items()}
    view = RelaxProgram(tvm.IRModule({**functions, "main": function}), "main").load()
    known = {param.name: node for param, node in zip(excerpt.function.params, excerpt.passed)}
    return patterns_of(view, lambda node: pat.Exactly(known[node.name]) if node.op == INPUT else None)
