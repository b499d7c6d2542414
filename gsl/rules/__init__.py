"""The rule book: graph substitutions that hold for every match, each with its algebra and where it applies.

``RULES["conv-batch-norm"]`` is one rule, ``FAMILIES["fold"]`` a group of them. ``BOOK`` is the rule set of those that
never enlarge a program and never make it slower; what pays only somewhere is in ``PARALLEL`` and ``LOWERING``. The
first line of a rule's ``doc`` is its algebra; the rest says where it applies, and which guard is there for what.
Sizes that are not known at rewrite time satisfy a guard only if they are the same expression.

``NORMAL`` brings what is written in many ways to one form, and ``IDIOMS`` recognises what is written out, in that form.
``MODULE_FUSION`` is a rule set of its own: it makes modules, which only traced graphs have. ``CPU`` and ``APPROXIMATE``
are for inference on a CPU: they write calls of ``gsl.kernels``, and the latter lowers their precision; ``GPU`` is for
inference on a GPU, and ``HALVES`` for programs in half precision anywhere. ``ORT`` is for models that onnxruntime runs:
its rules write operators of its own, whose declarations need torch. So do those of ``QUANTISED``, for graphs that PT2E
has quantised.
"""

from __future__ import annotations

import importlib
from typing import Any

from gsl.errors import nearest, require
from gsl.rewrite import RuleSet, Subst
from gsl.rules import fold, layout, merge, parallel
from gsl.rules.approximate import APPROXIMATE as APPROXIMATE
from gsl.rules.cpu import CPU as CPU
from gsl.rules.gpu import GPU as GPU
from gsl.rules.halves import HALVES as HALVES
from gsl.rules.idioms import IDIOMS as IDIOMS
from gsl.rules.modules import MODULE_FUSION as MODULE_FUSION
from gsl.rules.normal import NORMAL as NORMAL

FAMILIES: dict[str, tuple[Subst, ...]] = {
    "layout": (
        layout.transpose_transpose,
        layout.reshape_reshape,
        layout.reshape_identity,
        layout.cast_cast,
        layout.cast_identity,
        layout.dropout_identity,
        layout.copy_identity,
        layout.dispatch_tuple,
        layout.split_concat,
        layout.split_concat_variadic,
        layout.concat_concat,
    ),
    "merge": (merge.merge_element_wise, merge.merge_element_wise_variadic),
    "sums": (
        merge.sum_from_zero,
        merge.bias_add_add,
        merge.diamond_conv_add,
        merge.two_conv_add,
        merge.conv_shortcut_add,
    ),
    "fold": (
        fold.conv_multiply,
        fold.conv_bias_multiply,
        fold.conv_batch_norm,
        fold.conv_transpose_batch_norm,
        fold.dense_batch_norm,
    ),
    "parallel": (
        parallel.parallel_two_conv,
        parallel.parallel_conv_variadic,
        parallel.parallel_conv_bias_variadic,
        parallel.parallel_conv_expand_kernels,
        parallel.parallel_group_conv_variadic,
        parallel.parallel_two_dense,
        parallel.parallel_two_dense_bias,
        parallel.parallel_dense_variadic,
        parallel.parallel_dense_bias_variadic,
    ),
    "query-key-value": (
        parallel.parallel_dense_variadic,
        parallel.parallel_dense_bias_variadic,
        parallel.qkv_without_key_bias,
    ),
    "lower": (fold.lower_batch_norm, fold.lower_layer_norm),
}
"""The rules by what they are for; a rule may be in several families."""

RULES: dict[str, Subst] = {rule.name: rule for family in FAMILIES.values() for rule in family}
"""The rules by name."""

PARALLEL = RuleSet(
    dict.fromkeys(
        (*FAMILIES["parallel"], *FAMILIES["query-key-value"], merge.bias_add_add, merge.two_conv_add)
    )
)
"""Several products as one. It pays where one large product is much faster than some small ones, as on a GPU with small
batches; on a CPU the fields into which the result is split cost what the product gains, or more."""

LOWERING = RuleSet(FAMILIES["lower"])
"""Normalisations as arithmetic. It pays for back ends that have no kernels for them, or that fuse arithmetic."""

BOOK = RuleSet([rule for rule in RULES.values() if rule not in PARALLEL and rule not in LOWERING])
"""The rules that never enlarge a program, and do not make it slower."""

OPTIMISING: tuple[Subst, ...] = tuple(
    rule
    for rule in RULES.values()
    if rule
    not in (
        *FAMILIES["lower"],  # frameworks have kernels for normalisations
        parallel.parallel_conv_expand_kernels,  # multiplies with the zeros, too
        parallel.parallel_group_conv_variadic,  # moves every element of the result
        merge.two_conv_add,  # moves every element of the operands
    )
)
"""The rules that do not add work on the data wherever they apply: those of the book, and parallel layers as one."""


def __getattr__(name: str) -> Any:
    if name not in ("ORT", "QUANTISED"):
        here = (known for known, value in globals().items() if known.isupper() and isinstance(value, (RuleSet, dict)))
        sets = ["ORT", "QUANTISED", *here]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {nearest(name, sets)}")
    require("torch")
    module = importlib.import_module(f"gsl.rules.{name.lower()}")
    return getattr(module, name)
