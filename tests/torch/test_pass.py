"""``gsl.fx.Pass``: rules as a pass over a graph in place, and in inductor."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
import torch.nn.functional as F
from functorch.compile import aot_module, make_boxed_func
from torch import fx, nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

import gsl
from gsl import RuleSet, Subst, Workload, is_op, op, pat
from gsl.errors import FixpointError, FrontEndError, PatternError, WorkloadError
from gsl.fx import Pass, PassList
from gsl.rewrite.fingerprint import fingerprint
from gsl.rules import BOOK, OPTIMISING, RULES
from tests.helpers.book import EVERY_RULE
from tests.helpers.nets import NetOfOne
from tests.torch.models import RELUS, SMALL, TRIPLE, Branches, X, equal, gradients

IMAGES = torch.randn(2, 3, 8, 8)


def has_compiler() -> bool:
    try:
        return subprocess.run([get_cpp_compiler(), "--version"], capture_output=True, check=False).returncode == 0
    except Exception:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler")


def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.relu(x)) * 2.0 * 3.0


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return twice(x)


def test_a_module_is_rewritten_in_place_and_runs() -> None:
    module = fx.symbolic_trace(Twice())
    graph, pass_ = module.graph, Pass(SMALL)
    pass_(module)
    assert module.graph is graph
    assert len(graph.nodes) == 4
    equal(module(torch.ones(2)), torch.full((2,), 6.0))
    assert pass_.traces[0].summary() == {"relus": 1, "triple": 1}
    pass_(module)
    assert pass_.traces[1].count() == 0


def test_a_pass_explains_the_graphs_that_it_keeps() -> None:
    module = fx.symbolic_trace(Twice())
    with pytest.raises(WorkloadError, match=r"make it with gsl.fx.Pass\(rules, keep_graphs=True\)"):
        Pass(SMALL).explain()
    pass_ = Pass(SMALL, keep_graphs=True)
    with pytest.raises(WorkloadError, match="no graph"):
        pass_.explain()
    pass_(module)
    pass_(module)
    first, second = pass_.explain().values()
    assert (bool(first["relus"]), bool(second["relus"])) == (True, False)
    assert "relus (models.py:" in str(pass_.explain(RELUS))


@needs_compiler
def test_a_pass_of_inductor_explains_what_inductor_has_there() -> None:
    x = pat.Wildcard()
    pass_ = Pass(Subst(op.Sigmoid(op.ReLU(x)), op.Sigmoid(x), name="near"), keep_graphs=True)
    with fresh_cache(), inductor.patch(post_grad_custom_pre_pass=pass_), torch.no_grad():
        torch.compile(Twice())(torch.ones(2))
    assert "near" in str(pass_.explain())
    assert pass_.graphs[0].op_counts()["nn.relu"] == 2


def test_a_graph_is_rewritten_in_place() -> None:
    module = fx.symbolic_trace(Twice())
    Pass(SMALL)(module.graph)
    assert len(module.graph.nodes) == 4
    module.recompile()
    equal(module(torch.ones(2)), torch.full((2,), 6.0))


def test_weights_are_folded_in_evaluation_and_not_in_training() -> None:
    v, w = pat.Param(), pat.Param()
    sums = Subst(op.Dense(X, v) + op.Dense(X, w), op.Dense(X, v + w), name="sum")

    inputs = torch.randn(2, 4)
    for training, folds, parameters in ((False, True, 1), (True, True, 2), (False, False, 2)):
        weights = {name: nn.Parameter(torch.randn(3, 4)) for name in "vw"}
        original = NetOfOne(lambda net, x: F.linear(x, net.v) + F.linear(x, net.w), **weights).train(training)
        module = fx.symbolic_trace(original)
        Pass(sums, fold_params=folds)(module)
        equal(module(inputs), original(inputs))
        assert len(list(module.parameters())) == parameters


def test_a_graph_without_a_module_is_refused() -> None:
    graph = fx.Graph()
    graph.output(graph.placeholder("x"))
    with pytest.raises(FrontEndError, match=r"without a module; make one with torch.fx.GraphModule"):
        Pass(SMALL)(graph)


def test_a_pass_that_fails_leaves_the_graph_as_it_was() -> None:
    module = fx.symbolic_trace(Twice())
    before = str(module.graph)
    there, back = Subst(op.ReLU(X), op.Abs(X), name="there"), Subst(op.Abs(X), op.ReLU(X), name="back")
    with pytest.raises(FixpointError):
        Pass([there, back], iterative=True)(module)
    assert str(module.graph) == before


# ---------------------------------------------------------------- in inductor

ABS = Subst(op.Abs(op.Abs(X)), op.Abs(X), name="abs")
SLOTS = {
    "pre_grad_custom_pass": RULES["conv-batch-norm"],  # before autograd, which decomposes normalisations
    "joint_custom_pre_pass": RULES["parallel-dense-bias-variadic"],
    "post_grad_custom_pre_pass": RELUS,
    "post_grad_custom_post_pass": ABS,
}
"""Where a pass is called, and a rule that fires there."""


@needs_compiler
@pytest.mark.parametrize("where", ["joint_custom_pre_pass", "post_grad_custom_pre_pass"])
def test_results_that_are_views_of_one_tensor_are_made_of_it(where: str) -> None:
    """Torch makes them once more, by the strides that the tensor had when it was traced for autograd."""

    def views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x).t().contiguous()
        return y.view(-1), y.view(2, -1)

    x, pass_ = torch.randn(6, 4, requires_grad=True), Pass(RULES["copy-identity"])
    with fresh_cache(), inductor.patch({where: pass_}):
        equal(torch.compile(views)(x), views(x))
    assert "makes views of it for autograd by its strides" in str(pass_.traces[0])


def aot(model: nn.Module, pass_: Callable[[fx.GraphModule], fx.GraphModule | None], **options: Any) -> Any:
    """A model that autograd traces outside of ``torch.compile``, with a pass over what it traced."""

    def compiled(module: fx.GraphModule, _: Any) -> Any:
        return make_boxed_func((pass_(module) or module).forward)

    return aot_module(model, fw_compiler=compiled, bw_compiler=compiled, **options)


@pytest.mark.parametrize("wants", [True, False])
def test_results_lie_in_memory_as_before_outside_of_compile(wants: bool) -> None:
    def views(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x).t().contiguous()
        return y.view(-1), y.view(2, -1), x.clone()

    x, pass_, model = torch.randn(6, 4, requires_grad=wants), Pass(RULES["copy-identity"]), NetOfOne(views)
    outputs = aot(model, pass_)(x)
    equal(tuple(outputs), model(x))
    assert not pass_.traces[0].firings
    places = [output.untyped_storage().data_ptr() for output in (*outputs, x)]
    assert places[0] == places[1]
    assert len(set(places)) == 3


relu, transposed = op.ReLU(X), torch.ops.aten.t.default
WRITTEN: dict[str, tuple[Any, Any, bool]] = {
    "the elements in another order": (relu, op.Reverse(X, axis=0), True),
    "some rows": (relu, op.Take(X, op.Arange(start=0, stop=3, step=1, dtype="int64"), axis=0), True),
    "a row": (op.ReLU(op.Take(X, 0, axis=0)), op.Take(X, 0, axis=0), False),
    "other numbers": (op.Cast(relu, dtype="int64"), op.Cast(X, dtype="int64"), True),
    "the same numbers": (relu, op.Cast(X, dtype="float32"), False),
    "products of elements": (relu, op.Einsum([X, X], equation="ab,ab->ba"), True),
    "other axes": (relu, op.Einsum([X], equation="ab->ba"), False),
    "other axes of new memory": (relu, op.Einsum([op.Exp(X)], equation="ab->ba"), True),
    "a call of torch's": (relu, is_op(torch.ops.aten.sin.default)(X), True),
    "a view of torch's": (relu, is_op(transposed)(X), False),
    "a view of torch's of new memory": (relu, is_op(transposed)(op.Exp(X)), True),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_result_gets_memory_of_its_own(name: str) -> None:
    source, target, fires = WRITTEN[name]

    def model(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x)
        return y, y.long(), torch.relu(x[0])

    x, pass_ = torch.rand(3, 3), Pass(Subst(source, target, name="r"))
    outputs = aot(NetOfOne(model), pass_)(x)
    assert bool(pass_.traces[0].firings) is fires
    assert x.untyped_storage().data_ptr() not in [output.untyped_storage().data_ptr() for output in outputs]


@pytest.mark.parametrize("wants", [True, False])
def test_so_they_do_where_the_graph_becomes_a_workload(wants: bool) -> None:
    def views(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x).t().contiguous()
        return y.view(-1), y.view(2, -1), x.clone(), torch.relu(torch.relu(x))

    def pass_(module: fx.GraphModule) -> fx.GraphModule:
        once = RELUS(Workload.from_fx(module))
        assert once.trace.count() == 1
        new: fx.GraphModule = RULES["copy-identity"](once).mod
        return new

    x, model = torch.randn(6, 4, requires_grad=wants), NetOfOne(views)
    with torch.set_grad_enabled(wants):
        outputs = aot(model, pass_)(x)
    equal(tuple(outputs), model(x))
    assert len({output.untyped_storage().data_ptr() for output in (*outputs, x)}) == 4


@pytest.mark.long
def test_gsl_may_be_loaded_within_a_compiler() -> None:
    """There, torch computes with fake tensors."""
    code = """
import torch
from functorch.compile import aot_function, make_boxed_func

def compiled(module, _):
    from gsl.fx import Pass
    from gsl.rules import RULES

    Pass(RULES["copy-identity"])(module)
    return make_boxed_func(module.forward)

print(aot_function(lambda x: x.clone() + 1, fw_compiler=compiled)(torch.ones(2)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "tensor([2., 2.])\n", done.stderr


def failing(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("not today")


def snapshot(module: fx.GraphModule) -> Any:
    """All of a module that a pass could change."""
    nodes = [(node, node.name, node.target, node.args, node.kwargs, dict(node.meta)) for node in module.graph.nodes]
    return nodes, list(module.state_dict()), module.code


@pytest.mark.parametrize("hook", [False, True])
def test_a_module_is_as_it_was_where_code_of_the_user_fails(hook: bool) -> None:
    """A decomposition, or a function that observes what is replaced, fails while the graph is written."""
    x = torch.randn(3, 3)
    module = make_fx(lambda x: torch.tanh(torch.relu(x) * 2.0), tracing_mode="fake")(x)
    rule = Subst(op.ReLU(X), op.SiLU(op.Negative(X)), name="silu")
    before = snapshot(module)
    decompositions = {} if hook else {torch.ops.aten.silu.default: failing}
    if hook:
        module._register_replace_node_hook(failing)
    with pytest.raises(ValueError if hook else FrontEndError, match="not today"):
        Pass(rule, decompositions=decompositions)(module)
    assert snapshot(module) == before
    module.graph.lint()
    if hook:
        module._unregister_replace_node_hook(failing)
    pass_ = Pass(rule)
    pass_(module)
    assert [trace.count() for trace in pass_.traces] == [1]
    equal(module(x), torch.tanh(F.silu(-x) * 2.0))


def called(
    rule: Subst, table: Mapping[Any, Any] | None, asked: Mapping[Any, Any] | None = None,
    function: Callable[[torch.Tensor], torch.Tensor] = torch.relu,
) -> set[str]:  # fmt: skip
    """The names of what the graph of autograd of a function calls after a rule, where torch and the pass have tables of
    decompositions."""
    found: list[fx.GraphModule] = []
    pass_, x = Pass(rule, decompositions=asked), torch.randn(3, 3)

    def kept(module: fx.GraphModule) -> None:
        pass_(module)
        found.append(module)

    aot(NetOfOne(lambda self, x: function(x)), kept, decompositions=table)(x)
    assert pass_.traces[0].count() == 1
    return {str(node.target) for node in found[0].graph.nodes if node.op == "call_function"}


def test_new_calls_in_graphs_of_autograd_are_those_that_autograd_traces() -> None:
    """A linear layer is none: it is composed of others."""
    layer = Subst(op.ReLU(X), op.Dense(X, X), name="layer")
    assert called(layer, None) == {"aten.t.default", "aten.mm.default"}
    ones = op.Ones(shape=(3,), dtype="float32")
    norm = Subst(op.ReLU(X), op.BatchNorm(X, ones, ones, ones, ones), name="norm")
    assert called(norm, None) >= {"aten._native_batch_norm_legit_no_training.default"}


def test_what_is_left_of_a_call_is_one_that_autograd_traces() -> None:
    """A product is none; inductor has no code for it, and ``addmm`` where the graph adds to one."""
    apart = Subst(op.ReLU(X + (y := pat.Wildcard())), op.Clip(X + y, a_min=0.0), name="apart")
    names = called(apart, None, function=lambda x: torch.relu(torch.addmm(x, x, x)))
    assert names == {"aten.mm.default", "aten.add.Tensor", "aten.clamp.default"}


def test_new_calls_are_decomposed_by_the_table_that_the_pass_is_given() -> None:
    table, silu = torch.export.default_decompositions(), Subst(op.ReLU(X), op.SiLU(X), name="silu")
    assert called(silu, table) == {"aten.silu.default"}
    assert called(silu, table, table) == {"aten.sigmoid.default", "aten.mul.Tensor"}
    keys = [Pass(silu).uuid(), Pass(silu, decompositions={}).uuid(), Pass(silu, decompositions=table).uuid()]
    assert len({*keys}) == 3
    assert None not in keys


def test_a_graph_of_autograd_may_return_a_number() -> None:
    pass_, x = Pass(RELUS), torch.randn(3)
    outputs = aot(NetOfOne(lambda self, x: (torch.relu(torch.relu(x)), 7)), pass_)(x)
    equal(outputs[0], torch.relu(x))
    assert (outputs[1], pass_.traces[0].count()) == (7, 1)


def test_rules_fire_in_graphs_of_autograd_outside_of_compile() -> None:
    gelu = Subst(op.ReLU(X), op.GELU(X), name="gelu")
    kept: list[fx.GraphModule] = []
    model = NetOfOne(lambda self, x: torch.relu(torch.relu(x) * 2.0).clone())

    class Keeping(Pass):
        def __call__(self, graph: Any, is_inference: bool | None = None) -> None:
            super().__call__(graph, is_inference)
            kept.append(graph)

    pass_ = Keeping([gelu, RULES["copy-identity"]])
    with torch.no_grad():
        aot(model, pass_)(torch.randn(3))
    assert pass_.traces[0].summary() == {"gelu": 2, "copy-identity": 1}
    assert str(kept[0].graph).count("aten.gelu") == 2


@needs_compiler
def test_rules_fire_in_inductor() -> None:
    class Model(Branches):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            query, key, value = super().forward(x)
            return torch.relu(torch.relu(query)), torch.abs(torch.abs(key)), value

    module, passes = Model().eval(), {slot: Pass(rule) for slot, rule in SLOTS.items()}
    with inductor.patch(passes), torch.no_grad():
        equal(torch.compile(module)(IMAGES), module(IMAGES))
    assert {slot: sum(trace.count() for trace in pass_.traces) for slot, pass_ in passes.items()} == dict.fromkeys(
        SLOTS, 1
    )


@pytest.mark.long
@needs_compiler
def test_rules_fire_in_the_graphs_of_training_whose_sizes_are_symbols() -> None:
    module = NetOfOne(lambda net, x: (net.left(x), net.right(x)), left=nn.Linear(4, 3), right=nn.Linear(4, 5))
    pass_ = Pass(OPTIMISING)
    with inductor.patch({"post_grad_custom_pre_pass": pass_}):
        call = torch.compile(module, dynamic=True)
        for rows in (5, 9):
            inputs = torch.randn(rows, 4)
            equal(gradients(call, module, inputs), gradients(module, module, inputs), rtol=1e-4, atol=1e-5)
    assert [trace.count("parallel-dense-bias-variadic") for trace in pass_.traces] == [1, 0], "forward and backward"


@needs_compiler
def test_the_back_end_goes_on_to_inductor() -> None:
    module = Branches().eval()
    backend = gsl.torch_backend(OPTIMISING, iterative=True, fold_params=True)
    call = torch.compile(module, backend=backend, options={"max_autotune": False})
    with torch.no_grad():
        equal(call(IMAGES), module(IMAGES))
        module.query.weight.mul_(2)
        equal(call(IMAGES), module(IMAGES))
    assert backend.traces[0].count() == 2


@needs_compiler
def test_compiled_graphs_are_cached_by_the_rules() -> None:
    ran: list[int] = []
    with fresh_cache(), torch.compiler.config.patch(force_disable_caches=False):
        for name in ("a", "a", "b"):
            torch._dynamo.reset()
            pass_ = Pass(Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name=name))
            with inductor.patch({"post_grad_custom_pre_pass": pass_}), torch.no_grad():
                equal(torch.compile(lambda x: torch.relu(torch.relu(x)) + 1)(torch.ones(2)), torch.full((2,), 2.0))
            ran.append(len(pass_.traces))
    assert ran == [1, 0, 1], "the second graph comes from the cache"


@needs_compiler
def test_a_list_of_passes_is_a_pass_of_inductor_and_of_its_cache() -> None:
    names: list[list[str]] = []
    with fresh_cache(), torch.compiler.config.patch(force_disable_caches=False):
        for _ in range(2):
            torch._dynamo.reset()
            passes = PassList({"relus": RELUS, "rest": ABS})
            with inductor.patch({"post_grad_custom_post_pass": passes}), torch.no_grad():
                equal(torch.compile(lambda x: torch.relu(torch.relu(x)) + 1)(torch.ones(2)), torch.full((2,), 2.0))
            names.append([record.name for record in passes.records if record.trace.firings])
    assert names == [["relus"], []], "the second graph comes from the cache"


# ---------------------------------------------------------------- fingerprints


def test_a_pass_is_one_of_inductor_and_has_a_uuid() -> None:
    assert isinstance(Pass(SMALL), CustomGraphPass)
    passes = [Pass(SMALL), Pass(SMALL, iterative=True), Pass(SMALL, fold_params=False), Pass(RELUS), Pass(EVERY_RULE)]
    assert len({pass_.uuid() for pass_ in passes}) == len(passes)
    assert Pass(SMALL).uuid() == Pass([RELUS, TRIPLE]).uuid()


def test_fingerprints_tell_rules_apart() -> None:
    two, other = pat.Wildcard(), pat.Wildcard()
    limit = 3
    rules = [
        Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="r"),
        Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="s"),
        Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="r", priority=1),
        Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="r", inference_only=True),
        Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="r", extern_use=False),
        Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="r", fuzzy="cast"),
        Subst(op.ReLU(op.ReLU(X)), X, name="r"),
        Subst(op.Add(two, two), two, name="r"),
        Subst(op.Add(two, other), two, name="r"),
        Subst(op.Add(two, other), two, name="r", distinct=True),
        Subst(op.Add(two, pat.Wildcard(shape=(2,))), two, name="r"),
        Subst(op.Add(two, pat.Wildcard(shape=(3,))), two, name="r"),
        Subst(op.ReLU(two), two, name="r", where=two.shape[0] == 2),
        Subst(op.ReLU(two), two, name="r", where=two.shape[0] == 2.0),
        Subst(op.ReLU(two), two, name="r", where=lambda match: True),
        Subst(op.ReLU(two), two, name="r", where=lambda match: False),
        Subst(op.ReLU(two), two, name="r", where=lambda match: limit > 2),
        Subst(op.ReLU(two), lambda match: match[two], name="r"),
    ]
    found = [fingerprint(RuleSet([rule])) for rule in rules]
    assert None not in found
    assert len(set(found)) == len(rules)
    assert fingerprint(RuleSet(rules[:2])) != fingerprint(RuleSet(rules[:2], strategy="largest"))


def test_a_function_that_uses_what_has_no_text_has_no_fingerprint() -> None:
    hidden = itertools.count()
    rule = Subst(op.ReLU(X), X, name="r", where=lambda match: next(hidden) < 3)
    assert fingerprint(RuleSet([rule])) is None
    assert Pass(rule).uuid() is None


def test_fingerprints_are_equal_in_every_process() -> None:
    code = "from rules import BOOK; from gsl.rewrite.fingerprint import fingerprint; print(fingerprint(BOOK))"
    environments: list[dict[str, Any]] = [{**os.environ, "PYTHONHASHSEED": seed} for seed in "12"]
    found = {
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip()
        for env in environments
    }
    assert found == {fingerprint(BOOK)}


def test_what_is_no_list_of_passes_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(PatternError, match=r"takes passes by name.*and 1 is no text"):
        PassList({1: RELUS})  # type: ignore[dict-item]
    (tmp_path / "file").touch()
    with pytest.raises(PatternError, match="can't be the folder of the graphs: File exists"):
        PassList({"relus": RELUS}, dump=tmp_path / "file")
    assert list(PassList({"relus": RELUS, "rest": ABS})) == ["relus", "rest"]


@pytest.mark.parametrize("place", ["joint_custom_pre_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass"])
def test_a_sum_of_two_new_calls_is_of_both(place: str) -> None:
    x, y = pat.Wildcard(), pat.Wildcard()
    rule = Pass(Subst(op.Maximum(x, y), op.Exp(x) + op.Tanh(y), name="sum of two"))
    a, b = torch.randn(3, 8), torch.randn(3, 8)
    with fresh_cache():
        call = torch.compile(lambda a, b: torch.relu(torch.maximum(a, b)), options={place: rule})
        torch.testing.assert_close(call(a, b), torch.relu(a.exp() + b.tanh()))
    assert rule.traces[-1].summary() == {"sum of two": 1}
