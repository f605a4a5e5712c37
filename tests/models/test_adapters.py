"""LoRA adapters of the package peft on a frozen, pretrained base: what is frozen stays, what may train moves."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import regun
from expect import error
from regun.methods import method_names
from regun.methods._fresh_weights import reset
from regun.training.job import Budget

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")  # of peft and transformers
WITHOUT = {"amun": "floating-point", "ct": "convolutions", "crossfit": "prepared"}
"""Methods that need other inputs, layers or arguments, and a word of their error."""


def text_model(seed: int = 0) -> nn.Module:
    """A small BERT from its configuration alone, with adapters in its attention and a head of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.BertConfig(
            vocab_size=40,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            num_labels=3,
        )
        base = transformers.BertForSequenceClassification(config)
        lora = peft.LoraConfig(task_type=peft.TaskType.SEQ_CLS, r=2, target_modules=["query", "value"])
        model = peft.get_peft_model(base, lora)
        for name, value in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(value, std=0.1)  # as if it had been trained
    return model


def texts() -> dict[str, tuple[dict[str, torch.Tensor], np.ndarray]]:
    labels = np.arange(90) % 3
    ids = torch.randint(5, 40, (90, 8), generator=torch.Generator().manual_seed(0))
    ids[:, 0] = torch.from_numpy(labels)
    x = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    cuts = {"forget": slice(0, 12), "retain": slice(12, 60), "heldout": slice(60, 90)}
    return {name: ({k: v[cut] for k, v in x.items()}, labels[cut]) for name, cut in cuts.items()}


@pytest.mark.parametrize("name", [n for n in method_names() if n not in WITHOUT])
def test_the_base_stays_and_the_adapters_move(name: str) -> None:
    model = text_model()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    settings = {"batch_size": 16, **({"epochs": 3, "lr": 0.05} if name == "retrain" else {})} if name != "auto" else {}
    settings |= {"ssd": {"alpha": 0.0, "dampening": 0.5}, "msg": {"linear": True}}.get(name, {})
    budget = None if name in ("ssd", "auto") else Budget(steps=6)
    outcome = regun.unlearn(
        model,
        **texts(),
        method=name,
        settings=settings,
        recipe={"epochs": 4, "lr": 0.05},
        run=regun.RunOptions(budget=budget),
    )
    after = dict(outcome.model.named_parameters())
    moved = {n for n, p in after.items() if not torch.equal(p, before[n])}
    assert moved
    assert all(after[n].requires_grad for n in moved)
    if name != "ssd":
        assert any("lora_" in n for n in moved)
    assert type(outcome.model) is type(model)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())


def test_fresh_adapters_change_nothing_and_the_frozen_base_is_the_same() -> None:
    model = text_model().eval()
    fresh = reset(model, 7)
    for (name, ours), theirs in zip(fresh.named_parameters(), model.parameters(), strict=True):
        if "lora_B" in name:
            assert not ours.any()
        if not name.endswith("bias"):  # new ones are 0, as those of this model still are
            assert torch.equal(ours, theirs) is not ours.requires_grad
    inputs = texts()["forget"][0]
    hidden = [m.base_model.model.bert(**inputs).last_hidden_state for m in (fresh, model)]
    with model.disable_adapter():
        plain = model.base_model.model.bert(**inputs).last_hidden_state
    assert torch.allclose(hidden[0], plain)
    assert not torch.allclose(hidden[1], plain)


@pytest.mark.parametrize("name", WITHOUT)
def test_a_method_that_does_not_fit_says_so(name: str) -> None:
    with error(regun.RegunError, WITHOUT[name]):
        regun.unlearn(text_model(), **texts(), method=name)
