"""Reductions over axes, and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gsl.spec import examples as e
from gsl.spec import normalise as n
from gsl.spec.examples import Example, call
from gsl.spec.spec import AttrSpec, OpSpec, Trait, Types


def _fold_exclude(attrs: Mapping[str, Any], types: Types) -> Mapping[str, Any]:
    """``exclude`` means all axes but those given; where the rank is known, those are what ``axis`` says."""
    ndim = n.rank(types)
    if not attrs["exclude"] or ndim is None:
        return attrs
    return {**attrs, "axis": tuple([a for a in range(ndim) if a not in attrs["axis"]]), "exclude": False}


_AXIS = {
    "axis": AttrSpec(None, n.axes),
    "keepdims": n.switch(False),
    "exclude": AttrSpec(False, n.flag),
}


def _reduction(
    name: str,
    cls: str,
    reduce: Callable[..., Any],
    *examples: Example,
    attrs: Mapping[str, AttrSpec] | None = None,
    **options: Any,
) -> OpSpec:
    """A reduction ``reduce(torch, data, axis, keepdims, **attrs)`` over a tuple of at least one axis; ``options`` are
    fields of the declaration."""

    def meaning(torch: Any, data: Any, axis: tuple[int, ...], keepdims: bool, exclude: bool, **rest: Any) -> Any:
        if not axis:
            # Torch takes no axes for all of them.
            return reduce(torch, data.unsqueeze(-1), (-1,), False, **rest)
        return reduce(torch, data, axis, keepdims, **rest)

    return OpSpec(
        name,
        cls,
        ("data",),
        meaning,
        {**_AXIS, **(attrs or {})},
        traits=Trait.REDUCTION,
        joint=_fold_exclude,
        examples=examples,
        **options,
    )


def _one_by_one(name: str) -> Callable[..., Any]:
    """A function of torch that takes one axis only."""

    def reduce(torch: Any, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        for place in sorted(axis, reverse=True):
            data = getattr(torch, name)(data, place, keepdim=keepdims)
        return data

    return reduce


def _index(name: str) -> Callable[..., Any]:
    """The index among the elements of all reduced axes, in row-major order."""

    def reduce(torch: Any, data: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        kept = [a for a in range(data.dim()) if a not in axis and a - data.dim() not in axis]
        found = getattr(torch, name)(data.permute(*kept, *axis).flatten(len(kept)), -1)
        if keepdims:
            for place in axis:
                found = found.unsqueeze(place)
        return found

    return reduce


_UNBIASED = {"unbiased": n.switch(False)}


def _cumsum(torch: Any, data: Any, axis: int | None, dtype: str, exclusive: bool) -> Any:
    if axis is None:
        data, axis = data.reshape(-1), 0
    result = torch.cumsum(data, axis, dtype=getattr(torch, dtype) if dtype else None)
    # Sums of what comes before, not including the element itself.
    return result - data if exclusive else result


OPS: tuple[OpSpec, ...] = (
    _reduction(
        "sum",
        "Sum",
        lambda torch, x, axis, keepdims: torch.sum(x, axis, keepdim=keepdims),
        call(e.X),
        call(e.X, axis=(0, -1), keepdims=True),
        call(e.X, axis=1, exclude=True),
        call(e.X, axis=(0, 1, 2), exclude=True),
        call(e.I32, axis=0),
        call(e.exactly(3.0)),
    ),
    _reduction(
        "mean", "Mean", lambda torch, x, axis, keepdims: torch.mean(x, axis, keepdim=keepdims), call(e.X, axis=[1])
    ),
    _reduction(
        "max",
        "Max",
        lambda torch, x, axis, keepdims: torch.amax(x, axis, keepdim=keepdims),
        call(e.X, axis=(1, 2)),
        aliases=("amax",),
        torch_names="amax",
    ),
    _reduction(
        "min",
        "Min",
        lambda torch, x, axis, keepdims: torch.amin(x, axis, keepdim=keepdims),
        call(e.X, axis=0, keepdims=True),
        aliases=("amin",),
        torch_names="amin",
    ),
    _reduction("prod", "Prod", _one_by_one("prod"), call(e.X, axis=(0, 2)), call(e.X, axis=(0, 2), keepdims=True)),
    _reduction("all", "All", _one_by_one("all"), call(e.rand(2, 3, 4, dtype="bool", low=-1.0, high=9.0), axis=(0, 2))),
    _reduction("any", "Any", _one_by_one("any"), call(e.rand(2, 3, 4, dtype="bool", low=-9.0, high=1.0))),
    # Divided by the number of elements, or by one less when unbiased.
    _reduction(
        "variance",
        "Variance",
        lambda torch, x, axis, keepdims, unbiased: torch.var(x, axis, correction=int(unbiased), keepdim=keepdims),
        call(e.X, axis=-1),
        call(e.X, axis=(0, 1), unbiased=True),
        attrs=_UNBIASED,
        aliases=("var",),
        torch_names="var",
    ),
    _reduction(
        "std",
        "Std",
        lambda torch, x, axis, keepdims, unbiased: torch.std(x, axis, correction=int(unbiased), keepdim=keepdims),
        call(e.X, axis=1, keepdims=True),
        attrs=_UNBIASED,
        decompose=lambda o, x, **attrs: o("sqrt", o("variance", x, **attrs)),
    ),
    _reduction(
        "logsumexp",
        "LogSumExp",
        lambda torch, x, axis, keepdims: torch.logsumexp(x, axis, keepdim=keepdims),
        call(e.X, axis=(0, 1)),
    ),
    _reduction("argmax", "Argmax", _index("argmax"), call(e.X, axis=1), call(e.X, axis=(0, 2), keepdims=True)),
    _reduction("argmin", "Argmin", _index("argmin"), call(e.X)),
    # Over the flattened operand if there is no axis; dtype "" is that of the sum of the operand's elements.
    OpSpec(
        "cumsum",
        "Cumsum",
        ("data",),
        _cumsum,
        {
            "axis": AttrSpec(None, n.optional(n.axis())),
            "dtype": AttrSpec("", n.dtype_or_same),
            "exclusive": n.switch(False),
        },
        examples=(call(e.X, axis=-1), call(e.I32, dtype="float64"), call(e.I32, axis=0, exclusive=True)),
    ),
)
