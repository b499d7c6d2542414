"""``gsl.torch_backend``: rules between dynamo and another back end."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils.checkpoint import checkpoint

import gsl
from gsl import RuleSet, Subst, Trace, op, pat
from gsl.errors import NotRewrittenWarning, PatternError, WorkloadError
from gsl.rules import OPTIMISING, RULES
from tests.helpers.book import EVERY_RULE
from tests.helpers.compiled import Recorder
from tests.helpers.nets import NetOfOne
from tests.torch.models import RELUS, SMALL, TRIPLE, Branches, X, compiled, equal

IMAGES = torch.randn(2, 3, 8, 8)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("then", ["eager", "aot_eager"])
@pytest.mark.parametrize("options", [{}, {"fold_params": True}, {"iterative": True, "check": True}], ids=str)
def test_numbers_are_those_of_the_model(then: str, options: dict[str, Any]) -> None:
    module = Branches().eval()
    call, backend = compiled(module, EVERY_RULE, then, **options)
    with torch.no_grad():
        for inputs in (IMAGES, torch.randn(5, 3, 9, 8), torch.randn(4, 3, 7, 8)):
            equal(call(inputs), module(inputs))
    assert backend.traces[0].summary() == {"conv-batch-norm": 1, "parallel-dense-bias-variadic": 1}


def test_the_next_back_end_gets_the_rewritten_graph() -> None:
    recorder = Recorder()
    module = Branches().eval()
    call, _ = compiled(module, OPTIMISING, recorder)
    with torch.no_grad():
        equal(call(IMAGES), module(IMAGES))
    assert recorder.calls(F.batch_norm) == 0
    assert recorder.calls(F.linear) == recorder.calls(torch._C._nn.linear) == 1


def test_a_graph_on_which_no_rule_fires_is_handed_on_itself() -> None:
    seen: list[Any] = []
    recorder = Recorder()

    def first(module: Any, inputs: Any) -> Any:
        seen.append(module)
        return gsl.torch_backend(RELUS, recorder)(module, inputs)

    equal(torch.compile(lambda x: x + 1, backend=first)(torch.ones(2)), torch.full((2,), 2.0))
    assert recorder.graphs[0] is seen[0]


def test_sizes_that_change_are_symbols_and_rules_add_no_guards() -> None:
    module, recorder = Branches().eval(), Recorder()
    call, backend = compiled(module, EVERY_RULE)
    plain = torch.compile(module, backend=recorder)
    with torch.no_grad():
        for sizes in ((2, 3, 8, 9), (5, 3, 9, 8), (3, 3, 20, 6), (7, 3, 5, 11)):
            inputs = torch.randn(sizes)
            for axis in (0, 2, 3):
                torch._dynamo.mark_dynamic(inputs, axis)
            equal(call(inputs), module(inputs))
            plain(inputs)
    assert len(backend.traces) == len(recorder.graphs) == 1, "one graph for all sizes"
    assert backend.traces[0].count("conv-batch-norm") == 1


def test_guards_hold_and_other_types_are_compiled_anew() -> None:
    call, backend = compiled(NetOfOne(lambda self, x: torch.relu(torch.relu(x)) * 2.0 * 3.0), SMALL)
    for inputs in (torch.randn(3), torch.randn(3), torch.randn(3).double(), torch.randn(3, 2), torch.arange(3)):
        equal(call(inputs), torch.relu(inputs) * 6.0)
    assert [trace.count() for trace in backend.traces] == [2] * len(backend.traces)
    assert 3 <= len(backend.traces) <= 4


def test_graph_breaks_give_several_graphs() -> None:
    def broken(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(torch.relu(x))
        torch._dynamo.graph_break()
        return y * 2.0 * 3.0

    call, backend = compiled(NetOfOne(broken), SMALL)
    inputs = torch.randn(3)
    equal(call(inputs), torch.relu(inputs) * 6.0)
    assert [dict(trace.summary()) for trace in backend.traces] == [{"relus": 1}, {"triple": 1}]


def test_changed_weights_count_at_the_next_run() -> None:
    for options in ({}, {"fold_params": True}):
        module = Branches().eval()
        call, _ = compiled(module, EVERY_RULE, **options)
        with torch.no_grad():
            equal(call(IMAGES), module(IMAGES))
            module.query.weight.mul_(2)
            module.norm.running_var.add_(1)
            equal(call(IMAGES), module(IMAGES))
            module.load_state_dict(Branches().state_dict())
            equal(call(IMAGES), module(IMAGES))
            module.conv.weight = nn.Parameter(torch.randn_like(module.conv.weight))
            equal(call(IMAGES), module(IMAGES))


def test_weights_are_folded_once() -> None:
    module = Branches().eval()
    recorder = Recorder()
    call, _ = compiled(module, EVERY_RULE, recorder, fold_params=True)
    with torch.no_grad():
        equal(call(IMAGES), module(IMAGES))
    assert recorder.calls(torch.rsqrt) == recorder.calls(torch.cat) == recorder.calls(torch.concat) == 0
    names = [node.name for node in recorder.graphs[-1].graph.nodes if node.op == "placeholder"]
    assert sum(name.endswith("_folded") for name in names) == 4


def test_weights_that_depend_on_new_tensors_are_folded_once() -> None:
    module, recorder = NetOfOne(
        lambda net, x: net.norm(net.other(torch.relu(net.conv(x) + x))),
        conv=nn.Conv2d(3, 3, 3, padding=1, bias=False), other=nn.Conv2d(3, 4, 1), norm=nn.BatchNorm2d(4, affine=False),
    ).eval(), Recorder()  # fmt: skip
    call, backend = compiled(module, EVERY_RULE, recorder, fold_params=True)
    with torch.no_grad():
        equal(call(IMAGES), module(IMAGES))
        module.conv.weight.mul_(2)
        equal(call(IMAGES), module(IMAGES))
    assert backend.traces[0].summary() == {"conv-shortcut-add": 1, "conv-batch-norm": 1}
    graph = recorder.graphs[-1].graph
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [F.conv2d, torch.relu, F.conv2d]


def test_weights_without_versions_are_computed_at_every_run() -> None:
    module = Branches().eval()
    with torch.inference_mode():
        module.load_state_dict(Branches().state_dict(), assign=True)
        module.query.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
        call, _ = compiled(module, EVERY_RULE, fold_params=True)
        equal(call(IMAGES), module(IMAGES))
        module.query.weight.mul_(2)
        equal(call(IMAGES), module(IMAGES))


@pytest.mark.parametrize("then", ["eager", "aot_eager"])
def test_folded_weights_follow_the_statistics_of_an_eager_training(then: str) -> None:
    module = Branches().eval()
    call, _ = compiled(module, EVERY_RULE, then, fold_params=True)
    with torch.no_grad():
        for _ in range(2):
            equal(call(IMAGES), module(IMAGES))
            module.train()(IMAGES)  # batch norms write past torch's counters
            module.eval()
        equal(call(IMAGES), module(IMAGES))


@pytest.mark.parametrize("fused", [False, True])
def test_folded_weights_follow_the_steps_of_an_optimiser(fused: bool) -> None:
    module = Branches().eval()
    call, _ = compiled(module, EVERY_RULE, fold_params=True)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1, fused=fused)
    for _ in range(3):
        with torch.no_grad():
            equal(call(IMAGES), module(IMAGES))
        sum(each.sum() for each in module(IMAGES)).backward()
        optimiser.step()


def test_a_weight_that_the_graph_changes_is_not_folded() -> None:
    def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.v) + F.linear(x, self.w)
        self.v.add_(1)
        return y + F.linear(x, self.v) + F.linear(x, self.w)

    v, w = pat.Wildcard(), pat.Wildcard()
    sums = Subst(op.Dense(X, v) + op.Dense(X, w), op.Dense(X, v + w), name="sum")
    module, other = (NetOfOne(counting, v=torch.zeros(3, 4), w=torch.ones(3, 4)) for _ in range(2))
    call, _ = compiled(module, sums, fold_params=True)
    inputs = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(3):
            equal(call(inputs), other(inputs))
    equal(module.v, other.v)


def test_literals_of_a_rule_are_constants_of_the_graph() -> None:
    table = Subst(op.ReLU(X), op.ReLU(X) * pat.Const(torch.tensor([1.0, 2.0, 3.0]).numpy()), name="table")
    call, _ = compiled(NetOfOne(lambda self, x: torch.relu(x)), table, "aot_eager")
    equal(call(torch.ones(2, 3)), torch.tensor([[1.0, 2.0, 3.0]] * 2))


def test_one_literal_at_two_places() -> None:
    table = Subst(op.ReLU(X), op.ReLU(X) * pat.Const(torch.tensor([1.0, 2.0, 3.0])), name="table")
    call, _ = compiled(NetOfOne(lambda self, x: torch.relu(x) + torch.relu(x.neg())), table, "aot_eager")
    equal(call(-torch.ones(2, 3)), torch.tensor([[1.0, 2.0, 3.0]] * 2))


def test_groups_run_in_a_compiled_graph() -> None:
    group = Subst(op.ReLU(X + X), pat.Fused("doubled"), name="group")
    recorder = Recorder()
    call, _ = compiled(NetOfOne(lambda self, x: torch.relu(x + x).sum()), group, recorder)
    equal(call(torch.ones(2)), torch.tensor(4.0))
    assert any(node.op == "call_module" for node in recorder.graphs[0].graph.nodes)


# ---------------------------------------------------------------- errors


def test_the_error_of_a_rule_stops_the_compilation() -> None:
    def wrong(match: Any) -> bool:
        raise KeyError("nothing")

    broken = Subst(op.ReLU(X), X, where=wrong, name="broken")
    call, _ = compiled(NetOfOne(lambda self, x: torch.relu(x)), broken)
    with pytest.raises(BackendCompilerFailed, match=r"RewriteError: gsl.torch_backend: broken .*KeyError: 'nothing'"):
        call(torch.ones(2))


def test_rules_that_chase_each_other_stop_the_compilation() -> None:
    there, back = Subst(op.ReLU(X), op.Abs(X), name="there"), Subst(op.Abs(X), op.ReLU(X), name="back")
    call, _ = compiled(NetOfOne(lambda self, x: torch.relu(x)), RuleSet([there, back]), iterative=True)
    with pytest.raises(BackendCompilerFailed, match="go round in circles"):
        call(torch.ones(2))


def test_on_request_the_error_of_a_rule_is_a_warning() -> None:
    there, back = Subst(op.ReLU(X), op.Abs(X), name="there"), Subst(op.Abs(X), op.ReLU(X), name="back")
    call, backend = compiled(
        NetOfOne(lambda self, x: torch.relu(x)), RuleSet([there, back]), iterative=True, strict=False
    )
    with pytest.warns(NotRewrittenWarning, match="go round in circles"):
        equal(call(-torch.ones(2)), torch.zeros(2))
    assert backend.traces == []


def own_module(match: Any) -> nn.Module:
    """A module that takes its weight over."""
    layer = nn.Linear(4, 3, bias=False)
    layer.weight = nn.Parameter(match[WEIGHT].attrs["value"])
    return layer


WEIGHT = pat.Param()
MODULE = Subst(op.Dense(X, WEIGHT), pat.Module(own_module, X), name="module")


def test_a_graph_that_can_not_be_written_goes_on_as_it_was() -> None:
    module = NetOfOne(lambda self, x: self.layer(x), layer=nn.Linear(4, 3, bias=False))
    call, _ = compiled(module, MODULE)
    inputs = torch.randn(2, 4)
    with torch.no_grad(), pytest.warns(NotRewrittenWarning, match="only shapes are known"):
        equal(call(inputs), module(inputs))


def test_on_request_a_graph_that_can_not_be_written_is_an_error() -> None:
    module = NetOfOne(lambda self, x: self.layer(x), layer=nn.Linear(4, 3, bias=False))
    call, _ = compiled(module, MODULE, strict=True)
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match=r"FrontEndError: gsl.torch_backend: "):
        call(torch.randn(2, 4))


def test_check_finds_the_rule_that_is_wrong() -> None:
    wrong = Subst(op.Sigmoid(X), op.Tanh(X), name="wrong")
    call, _ = compiled(NetOfOne(lambda self, x: torch.relu(torch.relu(torch.sigmoid(x)))), [RELUS, wrong], check=True)
    with pytest.raises(WorkloadError, match="wrong: %sigmoid -> %tanh"):
        call(torch.ones(3))


def test_check_runs_at_the_first_run_only_and_changes_nothing() -> None:
    def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return torch.relu(torch.relu(F.dropout(x))) * 2.0 * 3.0 + self.count

    module, other = (NetOfOne(counting, count=torch.zeros(())) for _ in range(2))
    call, backend = compiled(module, SMALL, check=True)
    for seed in range(3):
        torch.manual_seed(seed)
        found = call(torch.ones(8))
        torch.manual_seed(seed)
        equal(found, other(torch.ones(8)))
    assert backend.traces[0].count() == 2


# ---------------------------------------------------------------- what a user sees


def test_traces_tell_what_fired_and_a_callback_sees_it() -> None:
    seen: list[tuple[Trace, int, int]] = []

    def look(trace: Trace, before: torch.fx.GraphModule, after: torch.fx.GraphModule) -> None:
        seen.append((trace, len(before.graph.nodes), len(after.graph.nodes)))

    call, backend = compiled(NetOfOne(lambda self, x: torch.relu(torch.relu(x))), SMALL, on_rewrite=look)
    call(torch.ones(2))
    ((trace, before, after),) = seen
    assert backend.traces == [trace]
    assert str(trace) == "relus: %relu_1 -> %relu"
    assert (before, after) == (4, 3)


def test_options_of_torch_compile_go_to_the_next_back_end() -> None:
    seen: list[dict[str, Any]] = []

    def then(module: Any, inputs: Any, **options: Any) -> Any:
        seen.append(options)
        return module.forward

    backend = gsl.torch_backend(SMALL, then)
    torch.compile(lambda x: torch.relu(torch.relu(x)), backend=backend, options={"a": 1})(torch.ones(2))
    assert seen == [{"options": {"a": 1}}]


def test_a_copy_that_is_changed_behind_a_graph_break_stays_a_copy() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.clone()
        torch._dynamo.graph_break()
        return y.add_(1), x

    call, _ = compiled(function, RULES["copy-identity"])
    equal(call(torch.zeros(3)), (torch.ones(3), torch.zeros(3)))


ONES = torch.ones(3)
SAME = Subst(op.LeakyReLU(X, alpha=1.0), X, name="same")
RETURNED: dict[str, tuple[Any, Subst]] = {
    "a copy of an input": (lambda x: (x + 0, x * 2.0), Subst(X + 0, X)),
    "a view of a copy": (lambda x: ((x + 0).view(-1), x * 2.0), Subst(X + 0, X)),
    "a copy by two casts": (lambda x: (x.double().float(), x * 2.0), RULES["cast-cast"]),
    "a copy by a reshape": (lambda x: (x.expand(2, 3).reshape(6).reshape(2, 3), x * 2.0), RULES["reshape-reshape"]),
    "what was dense before": (lambda x: (F.leaky_relu(x.contiguous(), 1.0), x * 2.0), SAME),
    "what is dense then": (lambda x: (F.leaky_relu(x, 1.0).contiguous(), x * 2.0), SAME),
    "equal results that are dense": (
        lambda x: (torch.relu(torch.relu(x)).contiguous(), torch.relu(x).contiguous()),
        RELUS,
    ),
    "a copy of a weight": (lambda x: (ONES + 0, x * 2.0), Subst(X + 0, X)),
    "a copy of another result": (lambda x: (y := torch.tanh(x), y + 0), Subst(X + 0, X)),
    "results that become equal": (lambda x: (torch.relu(torch.relu(x)), torch.relu(x)), RELUS),
    "equal results of one match": (
        lambda x: (torch.tanh(x) * 2.0, torch.tanh(x) * 2.0),
        Subst([(one := op.Tanh(X)) * 2.0, op.Tanh(X) * 2.0], [both := one * 2.0, both]),
    ),
    "a result of weights alone": (lambda x: (ONES * 2.0 * 3.0, x * 2.0), TRIPLE),
}


@pytest.mark.parametrize("name", RETURNED)
def test_results_may_be_changed_in_place(name: str) -> None:
    function, rule = RETURNED[name]
    call, _ = compiled(function, rule, iterative=True, fold_params=True)
    x = torch.ones(3)
    with torch.no_grad():
        expected = function(x)
        for place, other in ((0, 1), (1, 0)):
            results = call(x)
            results[place].add_(1)
            equal((x, ONES, results[other]), (torch.ones(3), torch.ones(3), expected[other]))
            equal(call(x), expected)


KEPT: dict[str, Any] = {
    "before a copy": lambda x: F.leaky_relu(x, 1.0).clone(),
    "behind a copy": lambda x: F.leaky_relu(x.clone(), 1.0),
    "before a cast": lambda x: F.leaky_relu(x, 1.0).type_as(INTEGERS),
}
INTEGERS = torch.ones(3, dtype=torch.int64)


@pytest.mark.parametrize("name", KEPT)
def test_a_result_that_is_a_copy_anyway_hinders_no_rule(name: str) -> None:
    call, backend = compiled(KEPT[name], SAME, "aot_eager")
    with torch.no_grad():
        equal(call(ONES), KEPT[name](ONES))
    assert backend.traces[0].count() == 1


class MakesModules(nn.Module):
    """Two layers of one input, between which a module is made."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.first(x)
        return nn.ReLU()(y), nn.Softmax(dim=-1)(self.second(x))


@pytest.mark.parametrize("then", ["eager", "inductor"])
def test_modules_that_are_made_in_forward_hinder_no_rule(then: str) -> None:
    # Torch's log is told of each, by a call in the graph.
    module, x = MakesModules(), torch.randn(3, 4)
    call, backend = compiled(module, RULES["parallel-dense-bias-variadic"], then)
    with torch.no_grad():
        equal(call(x), module(x))
    assert backend.traces[0].count() == 1
    assert "_log_api_usage_once" in backend.graphs[0].mod.code


def test_an_unknown_back_end_is_an_error_at_once() -> None:
    with pytest.raises(PatternError, match=r"then= is the name of a back end of torch.compile, or a function; got 3"):
        gsl.torch_backend(SMALL, then=3)  # type: ignore[arg-type]
    with pytest.raises(PatternError, match=r"then='indoctor' is no back end of torch.compile: did you mean 'inductor'"):
        gsl.torch_backend(SMALL, "indoctor")
    assert repr(gsl.torch_backend(SMALL, "eager")) == "<gsl.torch_backend of 2 rules, then 'eager'>"


@pytest.mark.parametrize(("given", "message"), [
    ({"budget": -1}, "budget= is a number of seconds, 0 or more, got -1"),
    ({"strict": "no"}, "strict= is None, True or False; got 'no'"),
    ({"on_rewrite": 3}, "on_rewrite= is a function of the trace, the graph and the new graph; got 3"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_errors_at_once(given: Any, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        gsl.torch_backend(SMALL, "eager", **given)


def test_one_rule_and_a_list_of_rules_will_do() -> None:
    for rules in (RELUS, [RELUS, TRIPLE], SMALL, iter([RELUS])):
        call, backend = compiled(NetOfOne(lambda self, x: torch.relu(torch.relu(x))), rules)
        call(torch.ones(2))
        assert backend.traces[0].count("relus") == 1


def test_nothing_is_warned_of_in_the_ordinary_case() -> None:
    call, _ = compiled(Branches().eval(), OPTIMISING, iterative=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", NotRewrittenWarning)
        call(IMAGES)
    assert RULES["conv-batch-norm"].inference_only


def test_importing_gsl_does_not_import_torch() -> None:
    code = "import sys, gsl; assert 'torch' not in sys.modules; sys.modules['torch'] = None; gsl.torch_backend"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "import of torch halted" in done.stderr, "what needs torch does import it"


# ---------------------------------------------------------------- autocast


def test_a_graph_under_autocast_goes_on_as_it_was() -> None:
    module = Branches().eval()
    call, backend = compiled(module, EVERY_RULE)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.warns(NotRewrittenWarning, match="runs under torch.autocast, where calls have other dtypes"):
            found = call(IMAGES)
        equal(found, module(IMAGES))
    assert backend.traces == []
    with torch.no_grad():
        equal(call(IMAGES), module(IMAGES))
    assert backend.traces[0].count("conv-batch-norm") == 1
    call, _ = compiled(module, EVERY_RULE, strict=True)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(BackendCompilerFailed):
        call(IMAGES)


def test_a_graph_within_a_region_of_autocast_is_kept() -> None:
    def inside(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear(x, weight).relu().relu()

    def form(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = checkpoint(inside, x, self.w, use_reentrant=False)
        return y.float() + checkpoint(torch.relu, x.relu(), use_reentrant=False)

    module = NetOfOne(form, w=torch.randn(4, 4))
    call, backend = compiled(module, SMALL)
    inputs = torch.randn(2, 4, requires_grad=True)
    equal(call(inputs), module(inputs))
    assert sum(trace.count("relus") for trace in backend.traces) == 0


def test_what_was_captured_is_explained() -> None:
    x = pat.Wildcard()
    near = Subst(op.Sigmoid(op.ReLU(x)), op.Sigmoid(x), name="near")
    call, backend = compiled(NetOfOne(lambda self, x: torch.relu(x) * 2.0), near)
    with pytest.raises(WorkloadError, match="no graph has been compiled yet: run the model first"):
        backend.explain()
    call(torch.ones(2))
    call(torch.ones(2, 3).double())
    assert len(backend.graphs) == len(backend.traces) == 2
    told = str(backend.explain())
    assert told.startswith("graph 0:\n  near (test_compile.py:")
    assert "graph 1:\n" in told
    assert "user: expected sigmoid(nn.relu(Wildcard)), found %mul (multiply)" in told
    assert not backend.explain(near)[0]["near"]
    assert backend.explain(Subst(op.ReLU(x), x + 0.0, name="other"))[1]["other"]
    assert backend.graphs[0].op_counts() == {"nn.relu": 1, "multiply": 1}


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.125

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.scale)


def test_numbers_that_torch_hands_on_as_inputs_are_explained() -> None:
    x = pat.Wildcard()
    scaled = Subst(op.ReLU(x * pat.Const()), op.ReLU(x), name="scaled")
    with torch.no_grad():
        call, backend = compiled(Scaled(), scaled, dynamic=True)
        call(torch.ones(2, 3))
        (told,) = {call.reason for call in backend.graphs[0].unread()}
        assert "is a number that is known at run time only; torch.compile(dynamic=True) hands on numbers" in told
        assert f"hint: %mul has no canonical reading: {told}" in str(backend.explain(scaled))
        with torch._dynamo.config.patch(specialize_float=True):
            call, backend = compiled(Scaled(), scaled, dynamic=True)
            call(torch.ones(2, 3))
        assert backend.explain(scaled)[0]["scaled"]


def test_the_graphs_are_kept_as_they_were_before_the_rules() -> None:
    call, backend = compiled(Branches().eval(), OPTIMISING)
    with torch.no_grad():
        call(IMAGES)
    assert backend.graphs[0].op_counts()["nn.batch_norm"] == 1
    assert list(RULES["conv-batch-norm"].match(backend.graphs[0]))


def masked_scores(x: torch.Tensor) -> torch.Tensor:
    scores = x @ x.mT
    scores.masked_fill_((x[:, :1] > 0).expand_as(scores), -1e38)
    return F.softmax(scores.float(), -1).type_as(scores) @ x


def two_in_a_row(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.relu_()
    y.mul_(2)
    return y.exp()


def an_input(x: torch.Tensor) -> Any:
    z = x.clone()
    z.mul_(2)
    return z, z.exp()


def seen_by_a_view(x: torch.Tensor) -> Any:
    y = x + 1
    row = y[0]
    y.relu_()
    return y * 2, row.exp()


IN_PLACE = {
    masked_scores: {"matmul": 2, "transpose": 1, "where": 1, "nn.softmax": 1},
    two_in_a_row: {"add": 1, "nn.relu": 1, "multiply": 1, "exp": 1},
    an_input: {"copy": 1, "multiply": 1, "exp": 1},
    seen_by_a_view: {"exp": 1, "multiply": 1},
}


@pytest.mark.parametrize("function", IN_PLACE)
def test_calls_behind_one_in_place_take_its_result(function: Any) -> None:
    call, backend = compiled(function, TRIPLE, "eager")
    x = torch.randn(3, 3)
    torch.testing.assert_close(call(x.clone()), function(x.clone()))
    counts = backend.graphs[0].op_counts()
    assert {name: counts.get(name) for name in IN_PLACE[function]} == IN_PLACE[function]
    opaque = [str(name) for name in counts if "relu_" in str(name) or "masked_fill_" in str(name)]
    assert bool(opaque) == (function is seen_by_a_view)
