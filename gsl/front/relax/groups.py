"""Reads outlined groups in Relax: private functions of a module with a name of their own, and the calls of them.

They are what ``relax.transform.FuseOpsByPattern`` makes. A function with the attribute ``Composite`` is a group of that
name; one with the attribute ``Codegen`` stands around such a function, for a code generator of TVM to find.
"""

from __future__ import annotations

import marshal
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import ir, relax
from tvm.relax.expr import _update_type

from gsl.errors import FrontEndError
from gsl.front.core.handle import is_tensor_leaf
from gsl.front.core.store import FreeNames
from gsl.front.relax.blocks import Swaps, with_visible
from gsl.front.relax.function import VARIABLES, replaced
from gsl.front.relax.handle import RelaxValues
from gsl.front.relax.opaque import is_tensor_expr, typed
from gsl.front.relax.types import is_constant, is_tensors
from gsl.front.tvm.tensors import python_value
from gsl.graph import INPUT, Node, TensorType
from gsl.graph.subgraph import Subgraph

COMPOSITE: Final = "Composite"
CODEGEN: Final = "Codegen"
PRIMITIVE: Final = "Primitive"
SYMBOL: Final = "global_symbol"
PREFIX: Final = "gsl."
"""The prefix of the names of a group's attributes, among those of the function."""


def label_of(function: Any) -> tuple[str, dict[str, Any]] | None:
    """The name and the attributes of the group that a function of a module is; ``None`` if it is none."""
    inner = composite(function)
    if inner is None:
        return None
    attrs = {
        str(name).removeprefix(PREFIX): python_value(value)
        for name, value in inner.attrs.items() if str(name).startswith(PREFIX)
    }  # fmt: skip
    if function.attrs is not None and CODEGEN in function.attrs:
        attrs["codegen"] = str(function.attrs[CODEGEN])
    return str(inner.attrs[COMPOSITE]), attrs


def composite(function: Any) -> Any:
    """The function that computes a group: itself, or the one that it stands around; ``None`` if it is no group."""
    attrs = function.attrs if isinstance(function, relax.Function) else None
    if attrs is None:
        return None
    inner = function if COMPOSITE in attrs else _inside(function) if CODEGEN in attrs else None
    fits = inner is not None and _is_flat(function.ret_ty) and all(is_tensors(var.ty) for var in inner.params)
    return inner if fits else None


def _inside(function: Any) -> Any:
    """The one local function that a function calls with its own parameters."""
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    if len(bindings) != 2:
        return None
    local, call = bindings
    inner = local.value
    if not isinstance(inner, relax.Function) or inner.attrs is None or COMPOSITE not in inner.attrs:
        return None
    value = call.value
    called = isinstance(value, relax.Call) and value.op.same_as(local.var) and function.body.body.same_as(call.var)
    same = called and len(value.args) == len(function.params)
    return inner if same and all(a.same_as(b) for a, b in zip(value.args, function.params)) else None


def _is_flat(found: Any) -> bool:
    """True for the type of a tensor, or of two or more of them."""
    if isinstance(found, ir.TupleType):
        return len(found.fields) > 1 and all(isinstance(field, relax.TensorType) for field in found.fields)
    return isinstance(found, relax.TensorType)


def called_group(module: Any, value: Any) -> Any:
    """The function of the group that an expression calls; ``None`` if it is no such call."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, ir.GlobalVar):
        return None
    function = module.functions.get(value.op)
    inner = composite(function)
    fits = inner is not None and len(inner.params) == len(value.args) and all(map(is_tensor_expr, value.args))
    return function if fits else None


def body_of(function: Any, args: Iterable[Any]) -> Any:
    """The function that computes a group, with the sizes of the operands of a call for those that it has names for."""
    inner = composite(function)
    sizes: dict[Any, Any] = {}
    for var, arg in zip(inner.params, args):
        _bind(var.ty, arg.ty, sizes)
    return inner.bind_symbolic_vars(sizes) if sizes else inner


def _bind(own: Any, given: Any, sizes: dict[Any, Any]) -> None:
    """Note what the sizes with names in one type are in the other."""
    if isinstance(own, ir.TupleType):
        for field, other in zip(own.fields, given.fields):
            _bind(field, other, sizes)
        return
    both = (getattr(own.shape, "values", None), getattr(given.shape, "values", None))
    for size, actual in zip(*[values or () for values in both]):
        if isinstance(size, ir.Var):
            sizes.setdefault(size, actual)


def plain(module: Any) -> Any:
    """The module with the groups that are meant for a code generator as functions that TVM itself compiles."""
    functions = {}
    for var, function in module.functions.items():
        inner = composite(function)
        if inner is not None and not inner.same_as(function):
            functions[var] = inner.without_attr(COMPOSITE).with_attr(SYMBOL, var.name_hint)
    if not functions:
        return module
    return tvm.IRModule({**dict(module.functions.items()), **functions}, module.attrs, module.global_infos)


def without_unused(functions: Mapping[Any, Any], suspects: Iterable[Any]) -> dict[Any, Any]:
    """The functions of a module without those of the groups among the suspects that are not called."""
    kept = dict(functions)
    work = [var for var in suspects if var in kept and composite(kept[var]) is not None]
    if not work:
        return kept
    calls = {var: set(_called(function)) for var, function in kept.items()}
    callers = Counter(var for called in calls.values() for var in called)
    while work:
        var = work.pop()
        if var not in kept or composite(kept[var]) is None or callers[var]:
            continue
        del kept[var]
        callers.subtract(calls[var])
        work.extend(calls[var])
    return kept


def _called(function: Any) -> list[Any]:
    return list(relax.analysis.all_global_vars(function)) if isinstance(function, relax.Function) else []


# ---------------------------------------------------------------- new functions


_StructuralKey: Final[Any] = tvm_ffi.StructuralKey

Write = Callable[..., Any]
"""Writes a call of the view: the node, a function that makes a variable, and one that binds a variable; see
``RelaxCallWriter.write``."""


class Outliner:
    """The new functions of one program; ``weight`` gives the expression of a weight.

    ``loaded`` is the program, if functions that were written for others may be used: its types show all of those of
    Relax, and it has no source locations.
    """

    def __init__(self, module: Any, weight: Callable[[Node], Any], loaded: Any = None) -> None:
        self.module = module
        self.weight = weight
        self.loaded = loaded
        self.functions: dict[Any, Any] = {}
        """The new functions by their variables. Equal ones are one, and one with that of the module."""
        self._names = FreeNames({var.name_hint for var in module.functions})
        self._written: dict[bytes, Any] = {}
        """The variables of groups whose functions need not be written once more, by what they depend on."""
        self._made: dict[Any, tuple[Any, Any]] = {}
        """The functions that other modules may share, and their structures, by all that they depend on."""

    @cached_property
    def _equal(self) -> dict[Any, Any]:
        """The variables of the private functions and groups by their structure, and by the groups' code generators."""
        found: dict[Any, Any] = {}
        for var, function in self.module.functions.items():
            attrs = function.attrs or {}
            own = function if SYMBOL not in attrs else composite(function) if CODEGEN in attrs else None
            if own is not None:
                codegen = str(attrs[CODEGEN]) if CODEGEN in attrs else None
                found.setdefault((codegen, _StructuralKey(own)), typed(var, function))
        return found

    def call(self, node: Node, operands: list[Any], writer: Callable[[Callable[[Node], Any]], Write]) -> Any:
        """The call of a new group. Constants among its operands become part of its function, as code generators expect.

        ``writer`` makes what writes the calls of the body, for a way to find the expression of a node.
        """
        assert isinstance(node.op, Subgraph)
        check_attributes(node.op, node.attrs)
        codegen = node.attrs.get("codegen")
        operands = [relax.BlockBuilder().normalize(arg) if arg.ty.is_missing() else arg for arg in operands]
        passed = [operand for operand in operands if not is_constant(operand)]
        function = self._function(node, operands, writer)
        structure = _StructuralKey(function)
        sizes = relax.analysis.free_symbolic_vars(function)
        if sizes:
            names = ", ".join(sorted(var.name for var in sizes))
            raise FrontEndError(f"{node.name}: no operand of the group {node.op.name} has the size {names} as its own")
        var = self._add(_name_of(node, codegen), function, structure, codegen)
        key = _key_of(node, operands)
        if key is not None:
            self._written[key] = (var, function.ret_ty)
            if self._reuses:
                self._made[_full_key(key, node)] = (function, structure)
        return ir.Call(var, passed)

    def known(self, node: Node, operands: list[Any]) -> tuple[Any, Any] | None:
        """The variable of the function of a group that was written before, for this program or for another one, and
        the type of its result; ``None`` if there is none."""
        key = _key_of(node, operands)
        if key is None or key in self._written or not self._reuses:
            return None if key is None else self._written.get(key)
        shared: tuple[Any, Any] | None = self.loaded.scope.shared.functions.get(_full_key(key, node))
        if shared is None:
            return None
        codegen = node.attrs.get("codegen")
        var = self._add(_name_of(node, codegen), *shared, codegen)
        found = self._written[key] = (var, shared[0].ret_ty)
        return found

    def remember(self) -> None:
        """Let other modules share the functions, which TVM has checked."""
        self.loaded.scope.shared.functions.update(self._made)

    @cached_property
    def _reuses(self) -> bool:
        """True if the function of a group depends on nothing but its view."""
        return self.loaded is not None and self.loaded.scope.is_exact and not self.loaded.function.has_spans

    def _function(
        self, node: Node, operands: list[Any], writer: Callable[[Callable[[Node], Any]], Write]
    ) -> Any:
        """The function of a group, with its name and attributes."""
        function = _Body(self, node, operands, writer).function()
        function = relax.utils.copy_with_new_vars(function).with_attr(COMPOSITE, str(node.op))
        if node.attrs.get("codegen") is None:
            function = function.with_attr(PRIMITIVE, True)
        for name, value in node.attrs.items():
            if name != "codegen":
                function = function.with_attr(PREFIX + name, value)
        return function

    def bring(self, function: Any) -> Any:
        """The variable of a function that a target brings along, as a private one of the module."""
        name = str(function.attrs[SYMBOL]) if SYMBOL in (function.attrs or {}) else "function"
        if isinstance(function, relax.Function):
            # Each variable is one of one function alone, also where that is a function of the module.
            function = relax.utils.copy_with_new_vars(function)
        function = function.without_attr(SYMBOL)
        return self._add(name, function, _StructuralKey(function), None)

    def _add(self, name: str, function: Any, structure: Any, codegen: str | None) -> Any:
        # Whether a code generator is meant for it, and which, is part of what it is.
        key = (codegen, structure)
        if key in self._equal:
            return self._equal[key]
        unique = self._names.free(re.sub(r"\W+", "_", name))
        function = _around(function, codegen, unique) if codegen else function
        var = typed(ir.GlobalVar(unique), function)
        self.functions[var] = function
        self._equal[key] = var
        return var


class _Body(RelaxValues):
    """The function of a group, whose calls are all written anew."""

    def __init__(
        self, outliner: Outliner, node: Node, operands: list[Any],
        writer: Callable[[Callable[[Node], Any]], Write],
    ) -> None:  # fmt: skip
        assert isinstance(node.op, Subgraph)
        super().__init__(node.op.body, outliner.weight)
        self._write = writer(self.value)
        self.swaps = Swaps()
        self.bindings: list[Any] = []
        self.params: list[Any] = []
        self._name = FreeNames().free
        for parameter, operand in zip([node for node in self.graph.nodes if node.op == INPUT], operands):
            if is_constant(operand):
                self.values[parameter] = operand
            else:
                self.values[parameter] = relax.Var(self._name(parameter.name or "x"), operand.ty)
                self.params.append(self.values[parameter])

    def function(self) -> Any:
        """The function, without attributes."""
        self.store_nodes(self.graph.nodes)
        results = [self._bound(self.value(output), output.name) for output in self.graph.outputs]
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        (bindings,), result = self.swaps.undone([self.bindings], result)
        visible = {
            var: relax.Var(var.name, var.ty)
            for var in relax.analysis.free_vars(result) if isinstance(var, relax.DataflowVar)
        }  # fmt: skip
        bindings = [with_visible(binding, visible) for binding in bindings] if visible else bindings
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], replaced(result, visible))
        return relax.Function(self.params, relax.BlockBuilder().normalize(body), None, True)

    def write(self, node: Node) -> Any:
        emit = self.swaps.noting(node, lambda var, expr: self.bindings.append(relax.VarBinding(var, expr)))
        expr, _ = self._write(node, lambda name, type: relax.DataflowVar(self._name(name), type), emit)
        if not isinstance(expr, (relax.Call, relax.TupleGetItem)):
            return expr
        var = relax.DataflowVar(self._name(node.name), expr.ty)
        emit(var, expr)
        return var

    def _bound(self, expr: Any, name: str) -> Any:
        """The variable of an output."""
        if isinstance(expr, relax.Var):
            return expr
        var = relax.DataflowVar(self._name(name), expr.ty)
        self.bindings.append(relax.VarBinding(var, expr))
        return var


def _around(function: Any, codegen: str, name: str) -> Any:
    """The function of a group for a code generator: a public one around it, which calls it."""
    outer = relax.utils.copy_with_new_vars(function)
    local = relax.Var("local_func", function.ty)
    output = relax.Var("output", outer.ret_ty)
    call = ir.Call(local, list(outer.params))
    _update_type(call, outer.ret_ty)
    block = relax.BindingBlock([relax.VarBinding(local, function), relax.VarBinding(output, call)])
    body = relax.SeqExpr([block], output)
    _update_type(body, outer.ret_ty)
    made = relax.Function(list(outer.params), body, outer.ret_ty, True)
    return made.with_attr(CODEGEN, codegen).with_attr(SYMBOL, name)


def _name_of(node: Node, codegen: str | None) -> str:
    """The name of the function of a group."""
    return f"fused_{node.op}" + (f"_{codegen}" if codegen else "")


def _key_of(node: Node, operands: list[Any]) -> bytes | None:
    """A key of everything that the function of a group depends on; ``None`` where there is no such key, as with
    constants."""
    assert isinstance(node.op, Subgraph)
    if any(type(operand) not in VARIABLES for operand in operands):
        return None
    number: dict[Node, int] = {}
    described: list[Any] = [node.op.name, *node.attrs.items()]
    for inner in node.op.body.nodes:
        number[inner] = len(number)
        if is_tensor_leaf(inner) or not isinstance(inner.op, str) or type(inner.type) is not TensorType:
            return None
        places = tuple([number[operand] for operand in inner.operands])
        described.append((inner.op, places, *inner.attrs.items(), inner.type.shape, inner.type.dtype))
    described.append(tuple([number[output] for output in node.op.body.outputs]))
    try:
        return marshal.dumps(described, 2)
    except ValueError:
        return None


def _full_key(key: bytes, node: Node) -> tuple[Any, ...]:
    """The same, with the names that the variables of the function get."""
    assert isinstance(node.op, Subgraph)
    return (key, *[inner.name for inner in node.op.body.nodes])


def check_attributes(group: Subgraph, attrs: Mapping[str, Any]) -> None:
    """Raise FrontEndError for attributes that the function of a group can't have."""
    for name, value in attrs.items():
        if name == "codegen":
            if value is not None and not (isinstance(value, str) and value):
                raise FrontEndError(f"{group}: codegen={value!r} of a group must be the name of a code generator")
        elif not _is_plain(value):
            raise FrontEndError(
                f"{group}: the attribute {name}={value!r} of a group must be made of numbers, strings, None and lists "
                "of them"
            )


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
