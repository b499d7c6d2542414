"""Operators of ``torch.library`` by their names, and those that are made of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._ops import OpOverload

from gsl.spec import natives

_MADE: Final = "_gsl_meaning"
"""The attribute of a function that tells that an operator was made of it here, so that it may be made anew."""


def registered(name: str) -> OpOverload | None:
    """The operator of that name; ``None`` if torch has none."""
    try:
        found = natives.overload_of(name)
    except LookupError:
        return None
    return found if isinstance(found, OpOverload) else None


def maker(name: str) -> Any:
    """The function of which the operator of that name was made here; ``None`` for any other."""
    return getattr(getattr(OPDEFS.get(name), "_init_fn", None), _MADE, None)


def define(
    name: str, schema: str, function: Callable[..., Any], meaning: Callable[..., Any], writes: Sequence[str] = ()
) -> OpOverload:
    """Make an operator of a meaning, also anew. Its kernel for every device is a function, from which its types follow,
    too."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return _apart(found, (*args, *kwargs.values()))

    setattr(kernel, _MADE, meaning)
    made: CustomOpDef = torch.library.custom_op(name, kernel, mutates_args=tuple(writes), schema=schema)
    made.register_fake(kernel)
    if not writes:
        made.register_autograd(functools.partial(_backward, function), setup_context=_keep)
    return made._opoverload


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any, keyword_only_inputs: Any = None) -> None:
    """Keep the arguments of a call for its gradients."""
    ctx.tensors = tuple([isinstance(value, torch.Tensor) for value in inputs])
    ctx.others = tuple([None if kept else value for kept, value in zip(ctx.tensors, inputs)])
    ctx.attrs = dict(keyword_only_inputs or {})
    ctx.save_for_backward(*(value for kept, value in zip(ctx.tensors, inputs) if kept))


def _backward(function: Callable[..., Any], ctx: Any, *grads: Any) -> Any:
    """The gradients of the operands of a call, which are those of its meaning."""
    saved = iter(ctx.saved_tensors)
    values = [next(saved).detach() if kept else other for kept, other in zip(ctx.tensors, ctx.others)]
    wanted = [place for place, needed in enumerate(ctx.needs_input_grad[: len(values)]) if needed]
    for place in wanted:
        values[place].requires_grad_()
    with torch.enable_grad():
        found = function(*values, **ctx.attrs)
    results = found if isinstance(found, tuple) else (found,)
    pairs = [(result, grad) for result, grad in zip(results, grads) if result.requires_grad and grad is not None]
    own = torch.autograd.grad(
        [result for result, _ in pairs], [values[place] for place in wanted], [grad for _, grad in pairs],
        allow_unused=True,
    )  # fmt: skip
    gradients: list[Any] = [None] * len(values)
    for place, gradient in zip(wanted, own):
        gradients[place] = gradient
    return tuple(gradients)


def _apart(found: Any, given: Sequence[Any]) -> Any:
    """Results with memory of their own: an operator must not return its argument, as ``x.contiguous()`` may be, nor one
    tensor twice."""
    if isinstance(found, (tuple, list)):
        results: list[Any] = []
        for item in found:
            results.append(_apart(item, (*given, *results)))
        return tuple(results)
    memory = [value.untyped_storage()._cdata for value in given if isinstance(value, torch.Tensor)]
    if isinstance(found, torch.Tensor) and found.untyped_storage()._cdata in memory:
        return found.clone()
    return found
