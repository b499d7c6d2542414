"""A match as the small module of Relax about which TVM's patterns and their checks are asked."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.transform import FuseOpsByPattern

from gsl import pat
from gsl.errors import FrontEndError
from gsl.exchange.imported import made_of
from gsl.front.core.handle import handle_of, is_tensor_leaf
from gsl.front.relax.function import RelaxFunction
from gsl.front.relax.groups import COMPOSITE, PRIMITIVE, SYMBOL, Outliner, composite
from gsl.front.relax.handle import RelaxLeaf
from gsl.front.relax.load import Loaded
from gsl.front.relax.opaque import Caller
from gsl.front.relax.program import RelaxProgram
from gsl.front.relax.types import Dims, FunctionScope, to_relax
from gsl.front.relax.write import RelaxCallWriter
from gsl.front.tvm.tensors import to_tvm
from gsl.graph import CONST, INPUT, Graph, Node
from gsl.graph.subgraph import Subgraph, call_type, outlined
from gsl.match import Match
from gsl.pat import Pattern
from gsl.spec.natives import TVMFunction


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
    try:
        excerpt = RelaxExcerpt(match)
        values = relax.analysis.get_var2val(excerpt.function)
        old = values[excerpt.function.body.body]
        found = pattern.extract_matched_expr(old, values)
        if found is None:
            return "its pattern is written in other calls"
        new = rewriter(old, dict(found.items()))
        return "its rewriter leaves this as it is" if old.same_as(new) else [_made(excerpt, new)]
    except FrontEndError as error:
        return str(error)
    except Exception as error:  # whatever the rewriter reads that is not there
        return f"the rewriter raises {type(error).__name__}: {error}"


def _made(excerpt: RelaxExcerpt, new: Any) -> Pattern:
    """An expression on the values of an excerpt, as a target."""
    body, result = excerpt.function.body, relax.Var("result", excerpt.function.ret_ty)
    blocks = [*body.blocks, relax.DataflowBlock([relax.VarBinding(result, new)])]
    whole = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, result))
    function = relax.Function(excerpt.function.params, whole, None, True).with_attr(SYMBOL, "main")
    functions = {var.name_hint: other for var, other in excerpt.module.functions.items()}
    view = RelaxProgram(tvm.IRModule({**functions, "main": function}), "main").load()
    known = {param.name: node for param, node in zip(excerpt.function.params, excerpt.passed)}
    made: dict[Node, Pattern] = {}
    for node in view.nodes:
        made[node] = pat.Exactly(known[node.name]) if node.op == INPUT else made_of(node, made)
    return made[view.outputs[0]]
