"""Every model of the catalogue: its shape, its size, that it is drawn by its seed, learns and can be stored."""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from regun.models import ModelSpec, build_model, logits_of, twice_differentiable
from regun.models.resnet import ResNet
from regun.models.swin import StochasticDepth

SMALL: dict[str, dict[str, Any]] = {
    "resnet18": {"width": 4},
    "resnet34": {"width": 4},
    "swin-nano": {"embed_dim": 16},
    "vit": {"dim": 32, "depth": 2, "heads": 2},
    "cnn": {"width": 8},
    "mlp": {"hidden": 32},
}
SIZES = [(1, 8, 8), (3, 32, 32), (3, 64, 64), (3, 28, 20)]


def make(name: str, size: tuple[int, int, int] = (1, 8, 8), classes: int = 5, seed: int = 0, **more: Any) -> nn.Module:
    return build_model(ModelSpec(name, {**SMALL.get(name, {}), **more}), classes, size, seed)


def images(size: tuple[int, int, int], count: int = 4) -> Tensor:
    return torch.randn(count, *size, generator=torch.Generator().manual_seed(1))


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small only lose by sharing work between threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def swin_tiny() -> nn.Module:
    return build_model(ModelSpec("swin-t"), 200, (3, 224, 224), seed=0)


def test_resnet18_for_cifar_has_the_published_number_of_parameters() -> None:
    assert count(build_model(ModelSpec("resnet18"), 10, (3, 32, 32), 0)) == 11_173_962


def test_resnets_for_imagenet_have_the_published_numbers_of_parameters() -> None:
    assert count(build_model(ModelSpec("resnet18"), 1000, (3, 224, 224), 0)) == 11_689_512
    assert count(build_model(ModelSpec("resnet34"), 1000, (3, 224, 224), 0)) == 21_797_672


def test_swin_tiny_has_the_published_number_of_parameters(swin_tiny: nn.Module) -> None:
    assert count(swin_tiny) == 27_673_154


def test_swin_tiny_maps_224_pixels_to_logits(swin_tiny: nn.Module) -> None:
    with torch.no_grad():
        assert swin_tiny(images((3, 224, 224), 1)).shape == (1, 200)


def test_resnet_has_torchvisions_parameter_names() -> None:
    names = set(make("resnet18").state_dict())
    assert {"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer4.1.bn2.bias", "fc.bias"} <= names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.weight"} <= names
    assert not any(name.startswith("layer1.0.downsample") for name in names)
    assert len(names) == 122


def test_resnet_convolutions_start_kaiming_fan_out() -> None:
    model = build_model(ModelSpec("resnet18"), 10, (3, 32, 32), 0)
    assert isinstance(model, ResNet)
    weight = model.get_parameter("layer3.1.conv2.weight")
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("pixels", "kernel", "stride", "pool"),
    [(8, 3, 1, False), (36, 3, 1, False), (37, 3, 2, False), (72, 3, 2, False), (73, 7, 2, True)],
)
def test_automatic_stem_follows_the_image_size(pixels: int, kernel: int, stride: int, pool: bool) -> None:
    model = make("resnet18", (3, pixels, pixels))
    assert isinstance(model, ResNet)
    assert (model.conv1.kernel_size[0], model.conv1.stride[0]) == (kernel, stride)
    assert isinstance(model.maxpool, nn.MaxPool2d) is pool


def test_a_stem_can_be_chosen() -> None:
    model = make("resnet18", (3, 32, 32), stem="imagenet")
    assert isinstance(model, ResNet)
    assert model.conv1.kernel_size == (7, 7)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_images_become_logits(name: str, size: tuple[int, int, int]) -> None:
    logits = make(name, size, classes=7)(images(size))
    assert logits.shape == (4, 7)
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    ("pixels", "patch", "window"), [(8, 2, 2), (12, 2, 3), (28, 2, 7), (32, 2, 4), (64, 4, 4), (224, 14, 4)]
)
def test_swin_nano_fits_patch_and_window_to_the_image(pixels: int, patch: int, window: int) -> None:
    config: Any = make("swin-nano", (3, pixels, pixels)).model.config  # type: ignore[union-attr]
    assert (config.patch_size, config.window_size) == (patch, window)


@pytest.mark.parametrize(("pixels", "patch"), [(7, 1), (8, 2), (28, 4), (32, 4), (64, 8), (224, 16)])
def test_vit_fits_its_patch_to_the_image(pixels: int, patch: int) -> None:
    config: Any = make("vit", (3, pixels, pixels)).model.config  # type: ignore[union-attr]
    assert config.patch_size == patch


def test_mlp_takes_feature_vectors() -> None:
    model = build_model(ModelSpec("mlp", {"features": 20, "hidden": 8, "depth": 3}), 4, None, 0)
    assert model(torch.zeros(2, 20)).shape == (2, 4)
    assert sum(isinstance(m, nn.Linear) for m in model) == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_alone_decides_the_weights(name: str) -> None:
    torch.rand(3)
    first, again, other = (make(name, seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", SMALL)
def test_the_callers_random_state_is_untouched(name: str) -> None:
    before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    make(name)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before[1], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("name", SMALL)
def test_weights_survive_safetensors(name: str) -> None:
    model, fresh = make(name, seed=0), make(name, seed=1)
    model(images((1, 8, 8)))  # moves batch norm's running statistics, which must survive as well
    state = model.state_dict()
    assert len({t.data_ptr() for t in state.values()}) == len(state), "no two names may share a tensor"
    fresh.load_state_dict(load(save(state)), strict=True)
    x = images((1, 8, 8))
    assert torch.equal(model.eval()(x), fresh.eval()(x))


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = make(name, **({"drop_path": 0} if name == "swin-nano" else {}))
    nn.functional.cross_entropy(model(images((1, 8, 8), 16)), torch.arange(16) % 5).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        if not key.endswith("k_proj.bias"):  # softmax does not change when all keys shift: exactly zero in theory
            assert parameter.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", SMALL)
def test_a_repeated_batch_is_learnt(name: str) -> None:
    model, x, y = make(name), images((1, 8, 8), 16), torch.arange(16) % 5
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses: list[float] = []
    torch.manual_seed(0)
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "cnn"])
def test_channels_last_changes_the_layout_only(name: str) -> None:
    model, x = make(name, (3, 32, 32)).eval(), images((3, 32, 32))
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    logits = model(x.to(memory_format=torch.channels_last))
    assert torch.allclose(logits, expected, atol=1e-5)
    convolution = next(m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3))
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", SMALL)
def test_gradients_of_single_examples_by_vmap(name: str) -> None:
    model, x, y = make(name).eval(), images((1, 8, 8), 3), torch.tensor([0, 1, 2])
    weights = {key: p.detach() for key, p in model.named_parameters()}

    def loss(values: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, values, (one[None],)), label[None])

    with warnings.catch_warnings(), twice_differentiable():
        warnings.simplefilter("error")
        each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    mean = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model.parameters()))
    for key, expected in zip(weights, mean, strict=True):
        assert torch.allclose(each[key].mean(0), expected, atol=1e-5), key


@pytest.mark.parametrize("name", SMALL)
def test_second_derivatives_exist(name: str) -> None:
    model, x = make(name).eval(), images((1, 8, 8))
    with twice_differentiable():
        loss = model(x).square().mean()
    first = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    second = torch.autograd.grad(sum((g.square().sum() for g in first), torch.zeros(())), list(model.parameters()))
    assert all(g.isfinite().all() for g in second)


def test_stochastic_depth_acts_in_training_only() -> None:
    model, x = make("swin-nano", drop_path=0.8), images((1, 8, 8))
    torch.manual_seed(0)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_stochastic_depth_drops_both_branches_of_a_block() -> None:
    model, x = make("swin-nano", drop_path=0.9), images((1, 8, 8), 64)
    block: Any = model.model.swin.encoder.layers[-1].blocks[-1]  # type: ignore[union-attr]
    outputs: dict[str, Tensor] = {}
    block.mlp.register_forward_hook(lambda m, a, out: outputs.update(mlp=out))
    block.drop_path.register_forward_hook(lambda m, a, out: outputs.update(attention=out))
    torch.manual_seed(0)
    model(x)
    for branch, output in outputs.items():
        dropped = (output.flatten(1).abs().amax(1) == 0).float().mean()
        assert 0.75 < dropped < 1, branch


def test_stochastic_depth_keeps_the_mean_and_drops_whole_examples() -> None:
    torch.manual_seed(0)
    output = StochasticDepth(0.25)(nn.Identity().train(), (), torch.ones(20_000, 2, 3))
    assert output.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(output.amin((1, 2)), output.amax((1, 2)))
    assert output.unique().tolist() == pytest.approx([0, 4 / 3])
    assert torch.equal(StochasticDepth(0.25)(nn.Identity().eval(), (), output), output)


def test_stochastic_depth_rises_linearly_to_its_setting(swin_tiny: nn.Module) -> None:
    hooks = [hook for m in swin_tiny.modules() for hook in m._forward_hooks.values()]
    rates = [hook.rate for hook in hooks if isinstance(hook, StochasticDepth)]
    assert rates == pytest.approx([0.2 * i / 11 for i in range(1, 12)])


def test_swin_tiny_starts_as_torchvisions_does(swin_tiny: nn.Module) -> None:
    state = {key.removeprefix("model.swin."): value for key, value in swin_tiny.state_dict().items()}
    tables = torch.cat([v.flatten() for k, v in state.items() if k.endswith("bias_table")])
    assert tables.std().item() == pytest.approx(0.02, rel=0.05)
    patches = state["embeddings.patch_embeddings.projection.weight"]
    assert patches.abs().max().item() == pytest.approx(1 / 48**0.5, rel=0.01)  # uniform up to 1/sqrt(fan in)


def test_a_copied_swin_is_independent_and_drops_by_its_own_mode() -> None:
    model, x = make("swin-nano", drop_path=0.8), images((1, 8, 8))
    twin = copy.deepcopy(model).eval()
    assert torch.equal(twin(x), twin(x))
    assert torch.equal(twin(x), copy.deepcopy(model).eval()(x))


@pytest.mark.parametrize("name", ["swin-nano", "vit"])
def test_transformers_models_take_a_mapping_and_bfloat16(name: str) -> None:
    model, x = make(name).eval(), images((1, 8, 8))
    exact = logits_of(model, {"pixel_values": x})
    assert torch.equal(exact, model(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.allclose(model(x).float(), exact, atol=0.05)


def test_models_come_in_training_mode() -> None:
    assert all(make(name).training for name in SMALL)
