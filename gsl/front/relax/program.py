"""Functions of Relax modules as programs of GSL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr import _update_type

from gsl.errors import FrontEndError, nearest
from gsl.front.base import ProgramStep
from gsl.front.core.opaque import read_groups
from gsl.front.core.store import FreeNames
from gsl.front.relax.blocks import check
from gsl.front.relax.function import RelaxFunction, items
from gsl.front.relax.groups import composite, plain, without_unused
from gsl.front.relax.infer import Infer
from gsl.front.relax.load import Loaded, RelaxLoader
from gsl.front.relax.opaque import Caller, canonical, reason
from gsl.front.relax.run import RelaxSteps, compiled, evaluate, reason_of
from gsl.front.relax.store import RelaxParameterStore, RelaxStorer
from gsl.front.relax.types import Dims, FunctionScope, from_relax
from gsl.front.relax.wide import in_float64, wide
from gsl.front.tvm import TvmProgram, fed
from gsl.front.tvm.tensors import to_numpy, to_tvm, weight
from gsl.graph import Graph, Node, Type, op_name
from gsl.pause import paused_collector


class RelaxProgram(TvmProgram):
    """One Relax function of an ``IRModule``; everything else in the module stays as it is."""

    fuses = True
    kept = "the module stays: Relax would write what the rules made in the words that are there"
    """The reason why :meth:`store` gives this program again."""

    def __init__(
        self, module: Any, function: str, values: Mapping[str, Any] | None = None, dims: Dims | None = None
    ) -> None:
        super().__init__(module)
        self._name = function
        self._values = None if values is None else {name: to_tvm(value) for name, value in values.items()}
        self._native = module[function]
        self._dims = dims or Dims()
        self._caller = Caller(module, self._dims)
        self._leaves: Mapping[str, Any] | None = None
        """The weights by name, when a view has been loaded."""

    @property
    def function(self) -> str:
        """The name of the function in the module."""
        return self._name

    @property
    def inputs(self) -> Mapping[str, Type | None]:
        """The names of the inputs in order, with their types where known."""
        known, names = self._values or {}, FreeNames()
        # As the view names them, in which variables of one name have different ones.
        types = {names.free(var.name): var.ty for var in items(self._native.params) if var.name not in known}
        return {name: from_relax(type, self._dims, lambda var: None) for name, type in types.items()}

    @property
    def params(self) -> Mapping[str, Any]:
        """The weights by name, as tensors of TVM: known values of parameters, and constants."""
        if self._leaves is None:
            self.load()
        return dict(self._leaves or {})

    def _arguments(self) -> tuple[Any, ...]:
        values = None if self._values is None else {name: to_numpy(value) for name, value in self._values.items()}
        return self._name, values

    @paused_collector
    def load(self) -> Graph:
        """A fresh view of the function."""
        function = RelaxFunction(self._native)
        scope = FunctionScope(function, self._dims)
        infer = Infer(self._caller, self._dims)
        shown = partial(canonical, scope=scope)
        loader = RelaxLoader(function, scope, self._values or {}, infer, shown, self._module)
        graph, infer.loaded = read_groups(loader.load(), self.operators), loader.loaded
        graph.writable, graph.shares_bodies = infer.writable, True
        graph.admits = None if scope.is_exact else infer.admits
        if self._is_called(function):
            # A caller may write to what it gets, or to what it has given.
            graph.shares = lambda node, operand: True
        self._leaves = loader.loaded.leaves
        return graph

    def why_unread(self) -> Callable[[Node], str | None]:
        """A function that tells why an opaque node of a view has no canonical reading."""
        return partial(reason, FunctionScope(RelaxFunction(self._native), self._dims))

    def _loaded(self, graph: Graph) -> Loaded:
        """The program from which a rewritten view was made. FrontEndError for a view of another program."""
        loaded = graph.infer.loaded if isinstance(graph.infer, Infer) else None
        if loaded is None or not loaded.function.native.same_as(self._native):
            raise FrontEndError(
                f"the view was not loaded from the Relax function {self._name!r} of this program; store takes a view "
                "that load() of the same program made"
            )
        return loaded

    @paused_collector
    def store(self, graph: Graph) -> RelaxProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        loaded = self._loaded(graph)
        is_called = self._is_called(loaded.function)
        parameters = RelaxParameterStore(loaded, self._values or {}, self._values is not None and not is_called)
        try:
            storer = RelaxStorer(graph, loaded, parameters, self._caller)
            function = storer.store()
        except Exception as error:
            # Relax may raise anything for a call that it does not take.
            raise FrontEndError(f"the Relax function {self._name!r} can't be written: {error}") from error
        values = None if self._values is None else parameters.values
        if function.ret_ty != self._native.ret_ty and is_called:
            function = returning(function, self._native.ret_ty, storer.writer.names.free("result"))
        if function.same_as(self._native):
            return RelaxProgram(self._module, self._name, values, self._dims).with_operators(self.operators)
        if _is_written(function, self._native):
            return self
        module = with_function(self._module, self._name, function, storer.outliner.functions)
        try:
            check(module, function, storer.fresh, self._module)
        except Exception as error:
            raise FrontEndError(f"the rewritten Relax function {self._name!r} is not well-formed: {error}") from error
        storer.remember()
        return RelaxProgram(module, self._name, values, self._dims).with_operators(self.operators)

    def _is_called(self, function: RelaxFunction) -> bool:
        """True if a function of the module calls this one, so that its parameters have to stay."""
        own = self._module.get_global_var(self._name)
        return own in function.called or any(
            own in relax.analysis.all_global_vars(other)
            for other in self._module.functions.values()
            if isinstance(other, relax.Function) and not other.same_as(self._native)
        )  # fmt: skip

    def build(self, *, target: Any = "llvm", **options: Any) -> Callable[..., Any]:
        """A callable that takes the inputs in order and returns numpy arrays; options are those of ``tvm.compile``."""
        params = items(self._native.params)
        return compiled(plain(self._module), self._name, params, self._values or {}, target, options)

    def wide(self, value: Any) -> Any:
        """A tensor of narrower floats in float64; any other value as it is."""
        return wide(value)

    def in_float64(self) -> Callable[..., Any]:
        """A callable that takes wide inputs in order, and computes with wide tensors only."""
        values = {name: wide(value) for name, value in (self._values or {}).items()}
        return RelaxProgram(in_float64(self._native, self._name), self._name, values, self._dims).build()

    def steps(self, graph: Graph) -> Sequence[ProgramStep]:
        """The bindings of the function that compute, in order."""
        return self._steps().steps(graph)

    def alone(self, steps: Sequence[ProgramStep], *, copies: int = 1) -> Callable[[], object]:
        """A function that runs these bindings and no others on TVM's machine."""
        return self._steps().alone(steps, copies)

    def _steps(self) -> RelaxSteps:
        return RelaxSteps(self._module, self._native, self._values or ())

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        """The value of a call node on torch tensors."""
        return evaluate(node, operands, self._caller)


def _is_written(new: Any, old: Any) -> bool:
    """True if a new function of the same parameters computes what the old one does, in the same words."""
    same = len(new.params) == len(old.params) and all(own.same_as(other) for own, other in zip(new.params, old.params))
    return same and bool(tvm_ffi.structural_equal(new, old))


def returning(function: Any, type: Any, name: str) -> Any:
    """The function with a result of that type, for which the callers know it, and not of a narrower one; the result is
    bound to a variable of that name."""
    body, var = function.body, relax.Var(name, type)
    body = relax.SeqExpr([*body.blocks, relax.BindingBlock([relax.VarBinding(var, body.body)])], var, body.span)
    _update_type(body, type)
    return relax.Function(function.params, body, type, function.is_pure, function.attrs, function.span)


def with_function(module: Any, name: str, function: Any, groups: Mapping[Any, Any] = MappingProxyType({})) -> Any:
    """A module with another function of that name and those of new groups, which shares all others with the old one.

    The functions of groups that the old function called go, where they are not called any more.
    """
    old = module.get_global_var(name)
    new = old
    if not old.ty.is_missing() and old.ty != function.ty:
        # Other parameters, or a narrower result: nobody calls the function, or refers to the old variable.
        new = tvm.ir.GlobalVar(name)
        _update_type(new, function.ty)
    before = dict(module.functions.items())
    functions = {new if var.same_as(old) else var: value for var, value in before.items()}
    functions[new] = function
    functions.update(groups)
    if any(composite(other) is not None for other in before.values()):
        functions = without_unused(functions, relax.analysis.all_global_vars(module[name]))
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def from_module(module: Any, params: Any = None, *, function: str | None = None) -> RelaxProgram:
    """The program of a function of a module: ``main``, the only Relax function, or the named one.

    ``params`` are values of its parameters: by name, or as ``relax.frontend.detach_params`` gives them, the lists of
    the last ones by function. FrontEndError where a function or parameter is not known or a value does not fit.
    """
    if isinstance(module, relax.Function):
        module, function = _module_of(module)
    if not isinstance(module, tvm.IRModule):
        raise FrontEndError(f"expected an IRModule or a function of Relax, but got a {type(module).__name__}")
    names = [var.name_hint for var, f in module.functions.items() if isinstance(f, relax.Function)]
    if not names:
        raise FrontEndError("the module has no Relax function; the functions of TIR alone are not rewritten")
    if function is None:
        function = "main" if "main" in names else names[0] if len(names) == 1 else None
        if function is None:
            raise FrontEndError(
                f"the module has several Relax functions, and none is called main: {', '.join(sorted(names))}; "
                "name one with function="
            )
    if function not in names:
        raise FrontEndError(f"the module has no Relax function {function!r}: {nearest(function, names)}")
    if params is None:
        return RelaxProgram(module, function)
    constants = cache(lambda: RelaxProgram(module, function).params)
    return RelaxProgram(module, function, _values(module[function], params, function, names, constants))


def _module_of(function: Any) -> tuple[Any, str]:
    attrs = function.attrs
    name = str(attrs["global_symbol"]) if attrs is not None and "global_symbol" in attrs else "main"
    if attrs is None or "global_symbol" not in attrs:
        function = function.with_attr("global_symbol", name)
    return tvm.IRModule({name: function}), name


def _values(
    function: Any, params: Any, name: str, functions: Sequence[str], constants: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:  # fmt: skip
    """The values by the names of the parameters. Those of constants may be among them, as in the ``params`` of a
    program, if they are what the function has; so may lists of values of other functions."""
    own = {var.name: var for var in function.params}
    if not isinstance(params, Mapping):
        raise FrontEndError(f"expected params as a mapping of names to tensors, but got a {type(params).__name__}")
    if params:
        _check_names(function, name)
    found: dict[str, Any] = {}
    for key, value in params.items():
        if key in functions and (isinstance(value, (list, tuple)) or type(value).__name__ == "Array"):
            if len(value) > len(own) and key == name:
                raise FrontEndError(f"{name}: there are {len(own)} parameters, but {len(value)} values in params")
            if key == name:
                found.update(zip(list(own)[len(own) - len(value):], value))
        elif key in own:
            found[str(key)] = value
        elif key not in constants() or not np.array_equal(to_numpy(constants()[key]), to_numpy(weight(key, value))):
            raise FrontEndError(f"{name}: there is no parameter {key!r} for the value in params; {nearest(key, own)}")
    return {key: _checked(own[key], weight(key, value), name) for key, value in found.items()}


def _check_names(function: Any, name: str) -> None:
    """FrontEndError where two parameters have one name, so that a value by name might be that of either."""
    names = [var.name for var in function.params]
    twice = next((each for place, each in enumerate(names) if each in names[:place]), None)
    if twice is not None:
        raise FrontEndError(f"{name}: several parameters are called {twice!r}; give them names of their own")


def _checked(var: Any, value: Any, function: str) -> Any:
    """The value of a parameter, if it has its type."""
    type = var.ty
    sizes = getattr(type, "shape", None)
    expected = [int(s) if isinstance(s, tvm.tirx.IntImm) else None for s in getattr(sizes, "values", None) or ()]
    fits = len(expected) == len(value.shape) and all(e is None or e == int(s) for e, s in zip(expected, value.shape))
    if not fits or str(type.dtype.dtype) != str(value.dtype):
        raise FrontEndError(
            f"{function}: the parameter {var.name!r} should be {type}, but its value is "
            f"{value.dtype}[{', '.join(map(str, value.shape))}]"
        )
    return value


def from_expr(expr: Any, inputs: Iterable[str] | None = None, *, seed: int = 0) -> RelaxProgram:
    """The program of a function, or of an expression over variables.

    ``inputs`` names the variables that are fed. The others are weights, which get random values of this seed. Without
    ``inputs``, all variables are fed.
    """
    function = expr if isinstance(expr, relax.Function) else _function_of(expr)
    names = [var.name for var in function.params]
    wanted = fed(names, inputs)
    if len(wanted) < len(set(names)):
        _check_names(function, "the expression")
    values = {var.name: _random(var, seed + n) for n, var in enumerate(function.params) if var.name not in wanted}
    module, name = _module_of(function)
    return RelaxProgram(module, name, values)


def _function_of(expr: Any) -> Any:
    """A function of one dataflow block that computes an expression from its free variables."""
    if isinstance(expr, (tvm.ir.Op, tvm.ir.GlobalVar, relax.ExternFunc)):
        raise FrontEndError(f"{op_name(expr)} computes nothing by itself; call it on variables")
    variables = [var for var in relax.analysis.free_vars(expr) if not tvm.ir.is_prim_expr(var)]
    builder = relax.BlockBuilder()
    try:
        with builder.function("main", variables):
            with builder.dataflow():
                output = builder.emit_output(builder.normalize(expr))
            builder.emit_func_output(output)
    except Exception as error:  # Relax may raise anything for an expression that is ill-typed
        raise FrontEndError(f"Relax can't make a function of the expression: {reason_of(error)}") from error
    return builder.get()["main"]


def _random(var: Any, seed: int) -> Any:
    """A random value of a weight, small enough for deep networks."""
    type = var.ty
    if not isinstance(type, relax.TensorType) or type.shape is None:
        raise FrontEndError(f"the variable {var.name!r} is no tensor of a known shape; name it among the inputs")
    try:
        shape = [int(size) for size in type.shape.values]
    except TypeError:
        raise FrontEndError(f"the variable {var.name!r} has symbolic sizes; name it among the inputs") from None
    values = np.random.default_rng(seed).uniform(-1, 1, shape)
    return tvm.runtime.tensor(values.astype(str(type.dtype.dtype)))
