"""Fresh weights are drawn as those of a new model are, also where a whole model has rules of its own."""

import pytest
import torch
from torch import nn

from regun.methods._fresh_weights import reset, shuffled

transformers = pytest.importorskip("transformers")
MANY = 300  # numbers of a tensor whose spread says how it was drawn


def text_model() -> nn.Module:
    sizes = {"vocab_size": 300, "dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 16}
    return transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**sizes, num_labels=3))


def image_model() -> nn.Module:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return transformers.ViTForImageClassification(transformers.ViTConfig(image_size=16, patch_size=4, **sizes))


class Wrapped(nn.Module):
    """A head of one's own on such a model."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = text_model(), nn.Linear(300, 200)


def spreads(model: nn.Module) -> dict[str, float]:
    return {name: float(p.detach().std()) for name, p in model.named_parameters() if p.numel() >= MANY}


def trained(make: type[nn.Module] | object) -> nn.Module:
    model = make()  # pyright: ignore[reportCallIssue]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.ones_like(parameter))
    return model


@pytest.mark.parametrize("make", [text_model, image_model, Wrapped, lambda: nn.Linear(30, 30)])
def test_fresh_weights_have_the_spread_of_a_new_model_s(make) -> None:
    expected = spreads(make())
    found = spreads(reset(trained(make), 5))
    assert len(found) == len(expected) > 0
    for name, spread in expected.items():
        assert found[name] == pytest.approx(spread, rel=0.25, abs=1e-9), name


@pytest.mark.parametrize("make", [text_model, Wrapped])
def test_fresh_weights_follow_from_the_seed_and_hold_nothing_of_the_trained_ones(make) -> None:
    one, other = reset(trained(make), 5), reset(make(), 5)
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), reset(make(), 6).parameters(), strict=True))


def test_frozen_layers_keep_theirs() -> None:
    model = trained(text_model)
    model.distilbert.embeddings.requires_grad_(False)
    kept = model.distilbert.embeddings.word_embeddings.weight.clone()
    for fresh in (reset(model, 1), shuffled(model, 1)):
        assert torch.equal(fresh.distilbert.embeddings.word_embeddings.weight, kept)
        assert float(fresh.classifier.weight.detach().std()) == pytest.approx(0.02, rel=0.5)


class Placed(nn.Linear):
    """Remembers whether it was on the CPU or on its own device when it drew its weights."""

    def __init__(self, *sizes: int) -> None:
        self.moves, self.drawn_after = 0, -1
        super().__init__(*sizes)

    def _apply(self, fn, recurse: bool = True):
        self.moves += 1
        return super()._apply(fn, recurse)

    def reset_parameters(self) -> None:
        self.drawn_after = self.moves
        super().reset_parameters()


@pytest.mark.parametrize("make", [reset, shuffled])
def test_fresh_weights_are_drawn_on_the_cpu_and_moved_to_the_model_s_device(make) -> None:
    layer = make(Placed(4, 3), 5)
    assert (layer.drawn_after, layer.moves) == (1, 2)


class Bare(nn.Module):
    """Weights that no layer can draw."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(50.0))


def test_numbers_that_no_layer_can_draw_are_permuted_as_the_seed_says() -> None:
    one, again, other = (shuffled(Bare(), seed).weight for seed in (5, 5, 6))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(one.sort().values, Bare().weight)
    assert not torch.equal(one, Bare().weight)
