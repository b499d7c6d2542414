"""Rules as a pass of TVM, for pipelines over Relax modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gsl import errors
from gsl.errors import FrontEndError, GSLError, PatternTypeError, checked, missing_package, nearest

try:
    import tvm
    import tvm_ffi
    from tvm import relax
except ModuleNotFoundError as _error:
    raise missing_package(_error) from _error

from gsl.front.relax import from_module
from gsl.rewrite import RuleSet, Subst
from gsl.workload import Workload

_OUTLINED = ("Composite", "Codegen", "Primitive")
"""The attributes of functions that belong to a back end: their contents have been decided on."""


@checked(PatternTypeError)
def Pass(
    rules: Subst | RuleSet | Iterable[Subst],
    *,
    iterative: bool = False,
    fold_params: bool = True,
    functions: str | Iterable[str] | None = None,
    name: str = "gsl.Pass",
) -> tvm.transform.Pass:
    """A pass that applies rules to the Relax functions of a module: a module pass of level 0 without requirements.

    ``functions`` names those to be rewritten; otherwise all are but those that an attribute ``Composite``, ``Codegen``
    or ``Primitive`` marks as a back end's. All other functions, and the module if no rule fires, are returned as they
    are. ``iterative`` and ``fold_params`` are those of a rule; constants count as weights.

    A pass that fails raises an error of GSL that names the function, and leaves the module as it was.
    """
    chosen = rules if isinstance(rules, (Subst, RuleSet)) else RuleSet(rules)
    wanted = None if functions is None else (functions,) if isinstance(functions, str) else tuple(functions)

    def transform(module: Any, context: Any) -> Any:
        for function in _functions(module, wanted):
            workload = Workload(from_module(module, function=function), name=function)
            try:
                new = chosen(workload, iterative=iterative, fold_params=fold_params)
            except GSLError as error:
                raise type(error)(f"{name}: in the function {function!r}: {error}") from error
            module = new.mod
        return module

    return tvm.transform.module_pass(transform, opt_level=0, name=name)


def _functions(module: Any, wanted: tuple[str, ...] | None) -> Iterator[str]:
    """The names of the functions to be rewritten. FrontEndError for a name that the module does not have."""
    known = {var.name_hint: f for var, f in module.functions.items() if isinstance(f, relax.Function)}
    if wanted is not None:
        for function in wanted:
            if function not in known:
                raise FrontEndError(f"the module has no Relax function {function!r}: {nearest(function, known)}")
        return iter(wanted)
    return iter([function for function, f in known.items() if not any(mark in (f.attrs or ()) for mark in _OUTLINED)])


# A pass runs within TVM, which would turn errors that it does not know into RuntimeErrors.
for _known in (errors.EvaluationError, errors.FixpointError, errors.FrontEndError, errors.PatternError,
               errors.RewriteError, errors.UndecidableError, errors.WorkloadError, KeyboardInterrupt):  # fmt: skip
    tvm_ffi.register_error(_known)

__all__ = ["Pass"]
