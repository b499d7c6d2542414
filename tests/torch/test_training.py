"""Training: gradients are those of the model, and rules for inference keep out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from gsl import RuleSet, Subst, Workload, op, pat
from gsl.fx import is_training
from gsl.rules import NORMAL, OPTIMISING, RULES
from tests.helpers.book import EVERY_RULE
from tests.helpers.compiled import Recorder
from tests.helpers.nets import NetOfOne
from tests.torch.models import SMALL, Branches, compiled, equal, gradients

IMAGES = torch.randn(2, 3, 8, 8)
X = pat.Wildcard()
RELUS = RuleSet([Subst(op.ReLU(op.ReLU(X)), op.ReLU(X), name="relus")])


@pytest.mark.parametrize("fold_params", [False, True])
def test_gradients_are_those_of_the_model(fold_params: bool) -> None:
    module = Branches().train()
    call, backend = compiled(module, EVERY_RULE, "aot_eager", fold_params=fold_params)
    expected = gradients(module, module, IMAGES)
    found = gradients(call, module, IMAGES)
    equal(found, expected, rtol=1e-4, atol=1e-5)
    assert backend.traces[0].summary() == {"parallel-dense-bias-variadic": 1}


def test_rules_for_inference_say_that_they_were_left_out() -> None:
    module = Branches().eval()
    call, backend = compiled(module, RULES["conv-batch-norm"])
    equal(gradients(call, module, IMAGES), gradients(module, module, IMAGES), rtol=1e-4, atol=1e-5)
    (trace,) = backend.traces
    assert str(trace) == (
        "conv-batch-norm refused at %batch_norm: the rule is for inference only, and the graph for training: "
        "compile it under torch.no_grad()"
    )
    with torch.no_grad():
        equal(call(IMAGES), module(IMAGES))
    assert backend.traces[-1].summary() == {"conv-batch-norm": 1}


def test_running_statistics_are_updated() -> None:
    module, other = Branches().train(), Branches().train()
    other.load_state_dict(module.state_dict())
    call, _ = compiled(module, EVERY_RULE, "aot_eager")
    for _ in range(2):
        equal(call(IMAGES), other(IMAGES))
    equal(dict(module.named_buffers()), dict(other.named_buffers()))


def test_steps_of_an_optimiser_are_those_of_the_model() -> None:
    module, other = Branches().train(), Branches().train()
    other.load_state_dict(module.state_dict())
    call, _ = compiled(module, OPTIMISING, "aot_eager", fold_params=True)
    for step, parts in ((call, module), (other, other)):
        optimiser = torch.optim.SGD(parts.parameters(), lr=0.1)
        for _ in range(3):
            gradients(step, parts, IMAGES)
            optimiser.step()
    equal(module.state_dict(), other.state_dict(), rtol=1e-4, atol=1e-5)


def test_gradients_of_inputs_flow() -> None:
    call, _ = compiled(NetOfOne(lambda self, x: torch.relu(torch.relu(x)) * 2.0 * 3.0), SMALL, "aot_eager")
    x = torch.randn(3, requires_grad=True)
    call(x).sum().backward()
    equal(x.grad, 6.0 * (x > 0))


@pytest.mark.parametrize("training", [True, False])
def test_gradients_do_not_flow_where_none_are_wanted(training: bool) -> None:
    """Under ``torch.no_grad()``, x * 1.0 is a number to who differentiates, and x is not."""

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            fixed = x * 1.0
        return (x * 1.0 + 2.0) * fixed

    call, backend = compiled(NetOfOne(lambda self, x: function(x)), Subst(X * 1.0, X, name="one"), "aot_eager")
    x = torch.randn(3, requires_grad=True)
    with torch.set_grad_enabled(training):
        found = call(x)
    equal(found, function(x))
    assert backend.traces[0].count() == (1 if training else 2)
    if training:
        found.sum().backward()
        equal(x.grad, x.detach())



def test_what_is_a_graph_for_training() -> None:
    recorder = Recorder()
    module = Branches().eval()
    call = torch.compile(module, backend=recorder)
    call(IMAGES)
    assert is_training(recorder.graphs[-1])
    with torch.no_grad():
        call(IMAGES)
        assert not is_training(recorder.graphs[-1])
    module.requires_grad_(False)
    call(IMAGES)
    assert not is_training(recorder.graphs[-1])
    assert is_training(torch.fx.symbolic_trace(Branches().train()))
    assert not is_training(torch.fx.symbolic_trace(Branches().eval()))


# ---------------------------------------------------------------- transformers


def bert() -> tuple[nn.Module, str, int]:
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config), "parallel-dense-bias-variadic", 2


def llama() -> tuple[nn.Module, str, int]:
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config), "parallel-dense-variadic", 4


def tokens(*size: int) -> torch.Tensor:
    return torch.randint(0, 50, size)


@pytest.mark.long
@pytest.mark.parametrize("make", [bert, llama])
def test_transformers_give_the_numbers_of_the_model(make: Any) -> None:
    module, rule, times = make()
    module.eval()
    call, backend = compiled(module, OPTIMISING, "aot_eager", iterative=True, fold_params=True)
    with torch.no_grad():
        for inputs in (tokens(2, 8), tokens(3, 11), tokens(4, 9)):
            equal(call(inputs)[0], module(inputs)[0])
    assert {trace.count(rule) for trace in backend.traces} == {times}
    assert len(backend.traces) <= 2, "one graph for the first sizes, and one for all"


@pytest.mark.sweep(3)
@pytest.mark.parametrize("make", [bert, llama])
def test_transformers_learn_as_the_model_does(make: Any) -> None:
    module, rule, times = make()
    module.train()
    call, backend = compiled(module, OPTIMISING, "aot_eager", iterative=True)
    inputs = tokens(2, 8)
    expected = gradients(lambda x: module(x)[0], module, inputs)
    found = gradients(lambda x: call(x)[0], module, inputs)
    # What has no part in the result has a gradient of zeros in a compiled graph.
    equal({name: found[name] for name in expected}, expected, rtol=1e-4, atol=1e-4)
    assert not any(found[name].any() for name in found.keys() - expected.keys())
    assert backend.traces[0].count(rule) == times


@pytest.mark.sweep(2)
@pytest.mark.parametrize("form", ["exported", "decomposed", "traced"])
def test_a_layer_in_training_mode_gets_the_hint_to_leave_it(form: str) -> None:
    x = pat.Wildcard()
    norm = Subst(op.BatchNorm(x, *(pat.Param() for _ in range(4))), x, name="norm")
    drop = Subst(op.Dropout(x), x, name="drop")

    def workload(model: nn.Module) -> Workload:
        example = (torch.randn(3, 4),)
        if form == "traced":
            return Workload.from_fx(fx.symbolic_trace(model), example)
        exported = torch.export.export(model, example)
        return Workload(exported.run_decompositions() if form == "decomposed" else exported)

    layers = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
    for rule in (norm, drop):
        told = str(rule.explain(workload(layers.train())))
        assert "is a layer in training mode; put the model into evaluation mode by model.eval()" in told
        assert "training mode" not in str(rule.explain(workload(layers.eval())))
        assert "training mode" not in str(rule.explain(workload(nn.ReLU().train())))


def without(x: torch.Tensor) -> torch.Tensor:
    b = torch.relu(torch.relu(x))
    with torch.no_grad():
        a = torch.relu(torch.relu(x))
    return a * b


def without_first(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        a = torch.relu(torch.relu(x))
    return a * torch.relu(torch.relu(x))


def for_inference(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        a = torch.relu(x)
    return a * 1 + x


@pytest.mark.parametrize("function", [without, without_first, for_inference])
@pytest.mark.parametrize("rules", [NORMAL, RELUS])
@pytest.mark.parametrize("then", ["eager", "aot_eager"])
def test_what_is_computed_without_gradients_is_not_shared(function: Any, rules: Any, then: str) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    call, _ = compiled(function, rules, then, iterative=True)
    expected, found = [torch.autograd.grad(each(x).sum(), x) for each in (function, call)]
    equal(found, expected)


def sliced(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: torch.relu(torch.relu(row)) * 1)(x)


def gradient(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda a: (torch.relu(torch.relu(a)) * 1).square().sum())(x)


def tangent(x: torch.Tensor) -> Any:
    return torch.func.jvp(lambda a: torch.relu(torch.relu(a)) * 1, (x,), (x,))


@pytest.mark.parametrize("function", [sliced, gradient, tangent])
@pytest.mark.parametrize("rules", [NORMAL, RELUS])
def test_transforms_of_functions_are_left_as_they_are(function: Any, rules: Any) -> None:
    def around(x: torch.Tensor) -> Any:
        return function(torch.relu(torch.relu(x + 1)))

    x = torch.randn(4, 3)
    call, backend = compiled(around, rules, iterative=True)
    equal(call(x), around(x))
    (trace,) = backend.traces
    assert trace.count() == (1 if rules is RELUS else 0)


def test_a_mode_that_is_set_in_a_graph_stays() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x) * 1

    after = Recorder()
    call, backend = compiled(forward, NORMAL, after)
    x = torch.randn(1, 2, 4, 8)
    equal(call(x), forward(x), rtol=1e-4, atol=1e-5)
    assert backend.traces[0].summary() == {"multiply-one": 1}
    assert after.calls(torch.nn.attention._sdpa_kernel) == 2
