"""Rule files on real models: GPT-2 of transformers, a traced module, a decomposed program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import fx, nn

from gsl import RuleSet, Workload
from gsl.rulefile import FusionMatch

QKV = """\
gpt2_qkv:
  priority: 1
  heuristic: GPT2_QKV
  pattern:
    norm:     {op_type: layer_norm, child: flatten}
    flatten:  {op_type: [view, reshape], required: false, child: project}
    project:  {op_type: [addmm, linear], child: unflatten}
    unflatten: {op_type: [view, reshape], required: false, child: parts}
    parts:    {op_type: [split, chunk], children: [heads_a, heads_b, heads_c]}
    heads_a:  {op_type: view, child: turn_a}
    heads_b:  {op_type: view, child: turn_b}
    heads_c:  {op_type: view, child: turn_c}
    turn_a:   {op_type: [transpose, permute]}
    turn_b:   {op_type: [transpose, permute]}
    turn_c:   {op_type: [transpose, permute]}

norm_linear:
  pattern:
    norm:    {op_type: layer_norm, child: flatten}
    flatten: {op_type: view, required: false, child: project}
    project: {op_type: [addmm, linear]}

mlp_tail:
  heuristic: GELU
  pattern:
    activate: {op_type: tanh, child: rest}
    rest:     {op_type: {inverted: true, options: [layer_norm, linear, addmm]}, match_multiple: true, child: project}
    project:  {op_type: addmm}
"""


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = hf.GPT2Config(
            n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=16, bos_token_id=0, eos_token_id=0,
            use_cache=False,
        )
        self.model = hf.GPT2Model(config).eval()

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.model(input_ids=tokens, return_dict=False)[0]


@pytest.fixture(scope="module")
def gpt2() -> Workload:
    return Workload.from_torch(Model(), (torch.arange(1, 7)[None],))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "fusion.yaml"
    file.write_text(QKV)
    return file


def test_qkv_of_gpt2(gpt2: Workload, path: Path) -> None:
    after = RuleSet.from_yaml(path)(gpt2)
    gpt2.compare(after).check()
    groups = list(after.groups().values())
    assert [group.name for group in groups] == ["gpt2_qkv", "norm_linear", "mlp_tail"] * 2
    assert {(group.name, *group.attrs.items()) for group in groups} == {
        ("gpt2_qkv", ("priority", 1), ("heuristic", "GPT2_QKV")),
        ("norm_linear", ("priority", 0)),
        ("mlp_tail", ("priority", 0), ("heuristic", "GELU")),
    }
    inside = [node.op for node in groups[0].body if node.operands]
    assert inside.count("transpose") == 3
    assert inside[:5] == ["nn.layer_norm", "reshape", "matmul", "nn.bias_add", "reshape"]
    # The last layer norm has no projection behind it.
    assert after.op_counts()["nn.layer_norm"] == 1
    again = after.inline()
    gpt2.compare(again).check()
    assert again.op_counts() == gpt2.op_counts()


def test_a_heuristic_looks_at_the_shapes(gpt2: Workload, path: Path) -> None:
    seen = []

    def decide(match: FusionMatch) -> str | None:
        seen.append(match["turn_a"].shape)
        return "too small" if len(seen) > 1 else None

    after = RuleSet.from_yaml(path, heuristics={"GPT2_QKV": decide})(gpt2)
    assert [group.name for group in after.groups().values()].count("gpt2_qkv") == 1
    assert seen[0] == (1, 2, 6, 8)
    assert "too small" in str(after.trace.refused[0])


def test_without_the_split_only_the_smaller_rule_fires(gpt2: Workload, path: Path) -> None:
    path.write_text(QKV.replace("[split, chunk]", "chunk").replace("chunk", "cat"))
    after = RuleSet.from_yaml(path)(gpt2)
    assert [group.name for group in after.groups().values()] == ["norm_linear", "norm_linear", "mlp_tail"] * 2


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.conv(x)))
        return torch.log_softmax(self.head(y.mean((2, 3))), -1)


SMALL = """\
conv: {pattern: {c: {op_type: conv2d, child: n}, n: {op_type: batch_norm, child: r}, r: {op_type: relu}}}
head: {pattern: {l: {op_type: [linear, addmm], child: s}, s: {op_type: log_softmax}}}
"""


@pytest.mark.parametrize("kind", ["exported", "traced", "decomposed"])
def test_every_way_to_get_a_graph(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    model, example = Small().eval(), (torch.randn(1, 3, 6, 6),)
    workload = (
        Workload.from_fx(fx.symbolic_trace(model), example)
        if kind == "traced"
        else Workload.from_torch(model, example)
        if kind == "exported"
        else Workload(torch.export.export(model, example).run_decompositions())
    )
    after = RuleSet.from_yaml(file)(workload)
    workload.compare(after).check()
    assert [group.name for group in after.groups().values()] == ["conv", "head"]
    assert [sum(bool(node.operands) for node in group.body) for group in after.groups().values()] == [4, 3]
