"""Modules of Relay as programs of GSL."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import tvm
from tvm import ir, relay

from gsl.errors import FrontEndError, nearest
from gsl.front.core.opaque import read_groups
from gsl.front.relay import spellings
from gsl.front.relay.handle import KnownParts, in_order, native_of, parts, unique_names
from gsl.front.relay.load import RelayLoader
from gsl.front.relay.recipes import Recipe
from gsl.front.relay.run import compiled, evaluate, with_room
from gsl.front.relay.spellings.table import items
from gsl.front.relay.store import RelayStorer
from gsl.front.relay.types import KnownTypes, RelayTypes, checked_type, diagnosed, is_static, native_type
from gsl.front.tree import NO_SPELLING
from gsl.front.tvm import TvmProgram, fed
from gsl.front.tvm.spellings import unread_reason
from gsl.front.tvm.tensors import to_numpy, to_torch, to_tvm, weight
from gsl.graph import Graph, Inference, Node, Op, TensorType, Type
from gsl.spec.meaning import has_symbols


class RelayProgram(TvmProgram):
    """The function ``@main`` of an ``IRModule``, with its weights; the other functions of the module stay as they are.

    ``params`` are weights by the names of variables of ``@main``, as ``relay.build`` takes them. All other variables
    are inputs.
    """

    def __init__(self, module: Any, params: Mapping[str, Any] | None = None) -> None:
        super().__init__(module)
        self._names = unique_names(main_of(module))
        given = {str(name): value for name, value in (params or {}).items()}
        self._params = {name: weight(name, given[name]) for name in self._names if name in given}
        self._known = KnownParts()
        self._types: KnownTypes = {}
        self._recipes: dict[Hashable, Recipe] = {}

    @cached_property
    def _typed(self) -> Any:
        """The module, of which every expression has a type."""
        typed, types = typed_module(self._module, self._known), RelayTypes(self._types)
        for name, var in zip(self._names, items(main_of(typed).params)) if self._params else ():
            if name in self._params:
                _check_weight(name, self._params[name], types.of(checked_type(var)), var)
        return typed

    @cached_property
    def inputs(self) -> Mapping[str, Type | None]:
        """The names of the inputs in order, with their types."""
        types = RelayTypes(self._types)
        # The weights are gone through too, so that sizes that are not known have the names that they have in the view.
        variables = items(main_of(self._typed).params)
        known = {name: types.of(checked_type(var)) for name, var in zip(self._names, variables)}
        return {name: type for name, type in known.items() if name not in self._params}

    @property
    def params(self) -> Mapping[str, Any]:
        """The weights by name, as tensors of TVM."""
        return self._params

    def _arguments(self) -> tuple[Any, ...]:
        return ({name: to_numpy(value) for name, value in self._params.items()},)

    def load(self) -> Graph:
        """A fresh view of the function ``@main``."""
        graph = read_groups(self._loader().load(), self.operators)
        graph.writable = partial(_check_writable, self._typed, graph.infer, self._recipes)
        return graph

    def _loader(self) -> RelayLoader:
        weights = {name: to_torch(value) for name, value in self._params.items()}
        typed, known, self._known = self._typed, self._known, KnownParts()  # they are as large as the program
        return RelayLoader(typed, main_of(typed), self._names, weights, known, self._types)

    def why_unread(self) -> Callable[[Node], str | None]:
        """A function that tells why an opaque node of a view has no canonical reading."""
        loader = self._loader()
        loader.load()
        return partial(_reason, loader)

    def store(self, graph: Graph) -> RelayProgram:
        """The program of a rewritten view of this one. FrontEndError if it can't be expressed."""
        old = main_of(self._typed)
        storer = RelayStorer(graph, self._typed, self._recipes, self._types)
        new = with_room(storer.store)
        if new.same_as(old):
            return self
        functions = dict(self._typed.functions.items())
        functions[self._typed.get_global_var("main")] = new
        module = tvm.IRModule(functions, self._typed.type_definitions, attrs=self._typed.attrs)
        program = RelayProgram(module, {**self._params, **storer.weights})
        program._recipes = self._recipes
        return program.with_operators(self.operators)

    def build(self, **options: Any) -> Callable[..., Any]:
        """A callable that takes the inputs in order and returns numpy arrays.

        The options are ``target`` (``"llvm"``), ``opt_level``, ``executor`` (``"graph"`` or ``"vm"``), ``device``, and
        settings of a ``PassContext``.
        """
        return compiled(renamed(self._typed, self._names), self._params, list(self.inputs), **options)

    def evaluate(self, node: Node, operands: Sequence[Any]) -> Any:
        """The value of a call node on torch tensors."""
        return evaluate(self._typed, node, operands)


def _check_writable(
    module: Any, infer: Inference, recipes: dict[Hashable, Recipe], op: Op, operands: tuple[Node, ...],
    attrs: Mapping[str, Any],
) -> None:  # fmt: skip
    """Raise FrontEndError if a new call can't be written in a module."""
    RelayStorer(Graph((), (), infer), module, recipes).try_call(op, operands, attrs)


def from_module(module: Any, params: Mapping[str, Any] | None = None) -> RelayProgram:
    """The program of an ``IRModule`` (or of a function or expression of Relay), with weights by name.

    Those of which ``@main`` has no variable are left out, as Relay leaves them out: an importer gives all weights of a
    model. FrontEndError for one that may be meant for a variable which has its type and no value.
    """
    if isinstance(module, RelayProgram):
        return module
    if isinstance(module, relay.Expr):
        module = _module_of(module)
    if not isinstance(module, tvm.IRModule):
        raise FrontEndError(f"expected an IRModule of Relay, but got a {type(module).__name__}")
    if not isinstance(params, Mapping | None):
        raise FrontEndError(f"expected params as a mapping of names to tensors, but got a {type(params).__name__}")
    _check_names(main_of(module), {str(name): value for name, value in (params or {}).items()})
    return RelayProgram(module, params)


def _check_names(function: Any, given: Mapping[str, Any]) -> None:
    """FrontEndError for a value under a name that no variable has, where a variable of its type has none."""
    names = unique_names(function)
    free = [var.type_annotation for name, var in zip(names, items(function.params)) if name not in given]
    for name in [name for name in given if name not in names]:
        value = weight(name, given[name])
        own = relay.TensorType(value.shape, value.dtype)
        if any(type is not None and tvm.ir.structural_equal(type, own) for type in free):
            raise FrontEndError(f"main: there is no parameter {name!r} for the value in params; {nearest(name, names)}")


def from_expr(expr: Any, inputs: Iterable[str] | None = None, *, seed: int = 0) -> RelayProgram:
    """The program of an expression or function of Relay: its variables are inputs, or weights with random values.

    ``inputs`` are the names of those that are inputs; without it, all are. The values are always the same for a seed:
    floats between 0 and 1, integers 0 or 1.
    """
    if not isinstance(expr, relay.Expr):
        raise FrontEndError(f"expected an expression or a function of Relay, but got a {type(expr).__name__}")
    if not isinstance(expr, relay.Function):
        expr = relay.Function(relay.analysis.free_vars(expr), expr)
    names = unique_names(expr)
    wanted = fed(names, inputs)
    module = typed_module(_module_of(expr))
    random = np.random.default_rng(seed)
    params = {
        name: _random(name, checked_type(var), random)
        for name, var in zip(names, main_of(module).params)
        if name not in wanted
    }
    return RelayProgram(module, params)


def _module_of(expr: Any) -> Any:
    """The module of a function, or of an expression."""
    free = relay.analysis.free_vars(expr) if isinstance(expr, relay.Function) else ()
    if free:
        names = ", ".join(f"%{var.name_hint}" for var in free)
        raise FrontEndError(f"the function of Relay uses {names}, which is not among its variables")
    return tvm.IRModule.from_expr(expr)


def main_of(module: Any) -> Any:
    """The function ``@main`` of a module. FrontEndError if it is none of Relay."""
    names = [str(var.name_hint) for var in module.get_global_vars()]
    if "main" not in names:
        raise FrontEndError(f"the module has no function @main of Relay; {nearest('main', names)}")
    function = module["main"]
    if not isinstance(function, relay.Function):
        raise FrontEndError(f"@main is no function of Relay, but a {type(function).__name__}")
    return function


def typed_module(module: Any, below: Callable[[Any], Sequence[Any]] = parts) -> Any:
    """The module with a type for every expression of ``@main``; itself if it has them already.

    Raises FrontEndError with Relay's reason if it is ill-typed.
    """
    main = module["main"]
    if checked_type(main) is not None and all(checked_type(expr) is not None for expr in in_order([main.body], below)):
        return module
    try:
        with diagnosed():
            return with_room(lambda: relay.transform.InferType()(module))
    except ValueError as error:
        raise FrontEndError(f"Relay finds no types for the module: {error}") from None


def renamed(module: Any, names: Sequence[str]) -> Any:
    """The module with these names for the variables of ``@main``; itself if they have them."""
    main = main_of(module)
    if names == [str(var.name_hint) for var in main.params]:
        return module
    variables = [relay.Var(name, checked_type(var)) for name, var in zip(names, main.params)]
    body = relay.bind(main.body, dict(zip(main.params, variables)))
    functions = dict(module.functions.items())
    new = relay.Function(variables, body, main.ret_type, main.type_params, main.attrs)
    functions[module.get_global_var("main")] = new
    return typed_module(tvm.IRModule(functions, module.type_definitions, attrs=module.attrs))


def _check_weight(name: str, value: Any, declared: Type | None, var: relay.Var) -> None:
    found = TensorType(tuple(map(int, value.shape)), str(value.dtype))
    if isinstance(declared, TensorType) and found != declared and not has_symbols(declared):
        raise FrontEndError(f"the weight {name!r} should be {checked_type(var)}, but is {native_type(found)}")


def _random(name: str, type: Any, random: np.random.Generator) -> Any:
    if not isinstance(type, relay.TensorType) or not is_static(type):
        raise FrontEndError(f"the variable {name!r} is {type}, of which there is no random value: make it an input")
    shape, dtype = tuple(map(int, type.shape)), str(type.dtype)
    if dtype == "bool" or dtype.startswith(("int", "uint")):
        return tvm.nd.array(random.integers(0, 2, shape).astype(dtype))
    import torch

    return to_tvm(torch.from_numpy(np.asarray(random.random(shape))).to(getattr(torch, dtype)))


def _reason(loader: RelayLoader, node: Node) -> str | None:
    """The reason for one opaque node of a view, which the loader loaded too; ``None`` for one that computes no tensor.
    """
    expr = native_of(node)
    if expr is None:
        return ""
    if not isinstance(checked_type(expr), (relay.TensorType, relay.TupleType)):
        return None
    name = str(expr.op.name) if isinstance(expr, relay.Call) and isinstance(expr.op, ir.Op) else ""
    reader = spellings.READERS.get(name)
    if reader is None:
        return NO_SPELLING
    return unread_reason(node, reader, spellings.RelayCall(expr, loader))
