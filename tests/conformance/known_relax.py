"""What Relax is known to spell otherwise than the canonical operators: exact lists, which the suite checks."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance import known_both

LISTS: Final[dict[str, Any]] = {
    "refused": {},
    "composed": {
        **known_both.COMPOSED,
        "reverse(axis=(0, -1))": "reverse",
        "reciprocal": "divide",
        "clip(a_max=3)": "minimum",
        "full_like": "full",
        "full_like #2": "broadcast_to cast",
        "arange(start=3, stop=0, step=-2, dtype=float32)": "",
        "sum(axis=(0, 1, 2), exclude=True)": "expand_dims sum",
        "sum #2": "expand_dims sum",
        "all(axis=(0, 2))": "cast min not_equal",
        "any": "cast max not_equal",
        "variance(axis=(0, 1), unbiased=True)": "multiply variance",
        "logsumexp(axis=(0, 1))": "add exp isinf log max squeeze subtract sum where",
        "cumsum(axis=0, exclusive=True)": "cumsum",
        "topk(k=1, axis=1, sorted=False)": "topk",
        "nn.attention(scale=0.5)": "broadcast_to nn.attention",
        "nn.attention(enable_gqa=True)": "nn.attention repeat",
        "nn.adaptive_max_pool3d(output_size=1)": "max",
        "nn.global_max_pool1d": "max",
        "nn.global_max_pool2d(out_layout=NHWC)": "max transpose",
        "nn.global_max_pool3d": "max",
        "nn.global_avg_pool1d": "mean",
        "nn.global_avg_pool2d(layout=NHWC)": "mean",
        "nn.global_avg_pool3d": "mean",
        "nn.layer_norm(axis=(-2, -1))": "full nn.layer_norm",
        "nn.layer_norm(axis=(0, 2))": "full nn.layer_norm",
        "nn.rms_norm(axis=(0, 2))": "add cast mean multiply rsqrt square",
        "nn.layer_norm(scale=False)": "full nn.layer_norm",
        "nn.rms_norm(axis=(1, 2), epsilon=0.1)": "full nn.rms_norm",
        "nn.group_norm(num_groups=1, axis=3)": "full nn.group_norm",
        "nn.instance_norm(axis=-1)": "full nn.instance_norm",
        "nn.l2_normalize(eps=1e-06, axis=1)": "divide maximum sqrt square sum",
        "nn.l2_normalize(eps=1000000.0)": "divide maximum sqrt square sum",
        "elu(alpha=2)": "add exp multiply nn.relu subtract",
        "mish": "multiply softplus tanh",
        "hardswish": "add divide multiply nn.relu6",
        "hardsigmoid": "add divide nn.relu6",
        "nn.prelu #2": "greater multiply where",
        "nn.global_avg_pool2d": "mean",
        "nn.global_max_pool2d": "max",
    },
    "unwritten": {
        "to be convertible from the old shape": (
            "reshape-reshape: no elements",
        ),
        "Relax gives it the type (float64[3, Min(2, b)]": (
            "split-concat: symbolic size",
        ),
        "Relax gives it the type float64[3, 6], not": (
            "split-concat-variadic: one part",
        ),
    },
    "respelled": {
        **known_both.RESPELLED,
        "a cast to the same dtype is no call": (
            "cast-identity: same dtype",
        ),
        "there are no copies": (
            "copy-identity: of a call",
            "copy-identity: of a copy",
        ),
        "a result in another layout is transposed": (
            "diamond-conv-add: result in another layout",
        ),
        "a layer norm has all its weights": (
            "lower-layer-norm: two axes, no offset",
            "lower-layer-norm: no weights",
            "lower-layer-norm: weights that don't count",
            "lower-layer-norm: an offset that doesn't count",
        ),
        "attention has as many heads of keys and values as of queries": (
            "parallel-dense-variadic: grouped-query attention without bias",
            "parallel-dense-bias-variadic: grouped-query attention",
            "qkv-without-key-bias: grouped queries",
        ),
    },
    "silent": frozenset((
        *known_both.SILENT,
        "cast-identity: same dtype",
        "copy-identity: of a call",
        "copy-identity: of a copy",
        "diamond-conv-add: result in another layout",
    )),
    "never": {
        **known_both.NEVER,
        "cast-identity": "a cast to the same dtype is no call",
        "copy-identity": "there are no copies",
    },
    "single": {
        "layer_norm: only support float32 and float16": (
            "lower-layer-norm: last axis",
            "transformer",
        ),
    },
    "rewritten": {
        **known_both.REWRITTEN,
    },
    "admitted": {
        "a result in another layout is transposed": (
            "parallel-two-conv: different layout of the result",
            "parallel-conv-variadic: different layout of the result",
        ),
    },
}
