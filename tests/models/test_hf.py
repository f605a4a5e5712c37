"""Models in the Hugging Face format: loaded from a directory, in silence, and described by their files."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from expect import error
from regun.errors import RegunError, SettingsError
from regun.models import ModelSpec, build_model, features_of
from regun.models.adapters import silent_transformers

SIZE = (3, 16, 16)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    folder = tmp_path_factory.mktemp("hf")
    with silent_transformers("test") as transformers:
        config = transformers.SwinConfig(
            image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4, num_labels=6
        )
        model: Any = transformers.SwinForImageClassification(config).eval()
        nn.init.normal_(
            model.swin.encoder.layers[0].blocks[0].attention.relative_position_bias.relative_position_bias_table
        )
        model.save_pretrained(folder)
    return folder, model


@pytest.fixture
def folder(source: tuple[Path, nn.Module], tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    for file in source[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_stored_weights_give_the_stored_models_logits(source: tuple[Path, Any]) -> None:
    folder, original = source
    x = torch.randn(2, *SIZE)
    model = build_model(ModelSpec(f"hf:{folder}"), 6, SIZE, 0)
    assert model.training
    assert torch.allclose(model.eval()(x), original(x).logits, atol=1e-6)


def test_another_number_of_classes_gets_a_new_head_on_the_stored_body(source: tuple[Path, Any]) -> None:
    folder, original = source
    x = torch.randn(2, *SIZE)
    first, again, other = (build_model(ModelSpec(f"hf:{folder}"), 4, SIZE, seed).eval() for seed in (0, 0, 1))
    assert first(x).shape == (2, 4)
    assert torch.equal(first(x), again(x))
    assert not torch.equal(first(x), other(x))
    assert torch.allclose(features_of(first, x), features_of(original, x), atol=1e-6)


def test_without_pretraining_the_seed_decides_the_weights(source: tuple[Path, Any]) -> None:
    spec = ModelSpec(f"hf:{source[0]}", {"pretrained": "false"})
    first, again = (build_model(spec, 6, SIZE, 0).state_dict() for _ in range(2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    stored = load_file(source[0] / "model.safetensors")
    assert not torch.equal(first["model.classifier.weight"], stored["classifier.weight"])


def test_a_loaded_model_does_not_change_with_its_file(folder: Path) -> None:
    model = build_model(ModelSpec(f"hf:{folder}"), 6, SIZE, 0).eval()
    x = torch.randn(2, *SIZE)
    expected = model(x)
    with (folder / "model.safetensors").open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(size // 2)
        file.write(b"?" * (size - size // 2))
    assert torch.equal(model(x), expected)


def test_weights_of_half_precision_become_float32(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({k: v.half() for k, v in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    model = build_model(ModelSpec(f"hf:{folder}"), 6, SIZE, 0)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_the_description_follows_config_and_weights(folder: Path) -> None:
    loaded, fresh = ModelSpec(f"hf:{folder}"), ModelSpec(f"hf:{folder}", {"pretrained": False})
    before, fresh_before = loaded.describe(), fresh.describe()
    assert json.loads(json.dumps(before)) == before
    assert list(before["weights"]) == ["model.safetensors"]
    weights = load_file(folder / "model.safetensors")
    weights["classifier.bias"] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert loaded.describe() != before
    assert fresh.describe() == fresh_before
    (folder / "config.json").write_text((folder / "config.json").read_text().replace('"gelu"', '"relu"'))
    assert fresh.describe() != fresh_before


def test_loading_is_silent_and_leaves_logging_as_it_was(
    source: tuple[Path, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub.utils import are_progress_bars_disabled
    from transformers.utils.logging import is_progress_bar_enabled

    def state() -> tuple[Any, ...]:
        levels = [logging.getLogger(name).level for name in ("transformers", "huggingface_hub")]
        return (*levels, is_progress_bar_enabled(), are_progress_bars_disabled())

    before = state()
    build_model(ModelSpec(f"hf:{source[0]}"), 4, SIZE, 0)
    assert capfd.readouterr() == ("", "")
    assert state() == before


@pytest.mark.parametrize("hidden", [True, False])
def test_hidden_or_shown_progress_bars_stay_so(hidden: bool) -> None:
    from transformers.utils import logging as bars

    before = bars.is_progress_bar_enabled()
    try:
        (bars.disable_progress_bar if hidden else bars.enable_progress_bar)()
        with silent_transformers("test"):
            assert not bars.is_progress_bar_enabled()
        assert bars.is_progress_bar_enabled() is not hidden
    finally:
        (bars.enable_progress_bar if before else bars.disable_progress_bar)()


def refuses(
    name: str, *names: object, settings: dict[str, Any] | None = None, size: tuple[int, int, int] = SIZE
) -> None:
    with error(RegunError, *names):
        build_model(ModelSpec(name, settings or {}), 6, size, 0)


def test_a_missing_directory_is_explained() -> None:
    refuses("hf:./nowhere", "'./nowhere'", "hf:PATH")
    with error(RegunError, "/no/such/place"):
        ModelSpec("hf:/no/such/place").describe()


def test_a_hub_name_without_network_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    def offline(*_: Any, **__: Any) -> str:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    refuses("hf:owner/model", "ConnectionError", "hf:PATH")


def test_a_hub_name_is_fetched_without_pickles(monkeypatch: pytest.MonkeyPatch, source: tuple[Path, Any]) -> None:
    import huggingface_hub

    asked: dict[str, Any] = {}

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.update(name=name, patterns=allow_patterns)
        return str(source[0])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert build_model(ModelSpec("hf:owner/model"), 6, SIZE, 0)(torch.zeros(1, *SIZE)).shape == (1, 6)
    assert asked["name"] == "owner/model"
    assert all(pattern.endswith((".json", ".safetensors")) for pattern in asked["patterns"])


def test_a_directory_without_config_is_refused(folder: Path) -> None:
    (folder / "config.json").unlink()
    refuses(f"hf:{folder}", "config.json", "save_pretrained")


def test_pickled_weights_are_never_loaded(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    refuses(f"hf:{folder}", "pickled", ".bin")
    assert build_model(ModelSpec(f"hf:{folder}", {"pretrained": False}), 6, SIZE, 0) is not None


def test_weights_that_do_not_fit_their_config_are_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["swin.layernorm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    refuses(f"hf:{folder}", 1, "swin.layernorm.weight")


def test_broken_weights_are_explained(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"not weights")
    refuses(f"hf:{folder}", folder)


def test_a_model_of_another_kind_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bert"}')
    refuses(f"hf:{folder}", folder, "ValueError", settings={"pretrained": False})


def test_code_that_comes_with_a_model_is_never_run(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    auto = {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto}))
    refuses(f"hf:{folder}", folder)


def test_images_of_another_kind_are_refused(source: tuple[Path, Any]) -> None:
    refuses(f"hf:{source[0]}", 3, 1, "image_size", 16, size=(1, 16, 16))


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    with silent_transformers("test") as transformers:
        config = transformers.ViTConfig(image_size=16, patch_size=8, hidden_size=8, num_hidden_layers=1)
        config.update({"num_attention_heads": 1, "intermediate_size": 8})
        config.save_pretrained(tmp_path)
    refuses(f"hf:{tmp_path}", "ValueError", 32, settings={"pretrained": False}, size=(3, 32, 32))


def test_unknown_settings_are_refused(source: tuple[Path, Any]) -> None:
    with error(SettingsError, "'pretraned'", "'pretrained'"):
        build_model(ModelSpec(f"hf:{source[0]}", {"pretraned": True}), 6, SIZE, 0)
