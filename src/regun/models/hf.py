"""Image classifiers in the Hugging Face format, from a local directory or the hub: `hf:PATH_OR_NAME`."""

import hashlib
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from regun.errors import RegunError
from regun.models.adapters import TransformersAdapter, silent_transformers
from regun.models.architecture import ImageSize
from regun.settings import check, setting

PREFIX = "hf:"
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
FILES = ["config.json", "model*.safetensors", "model.safetensors.index.json"]


@dataclass(frozen=True)
class HfSettings:
    """Settings of `hf:PATH_OR_NAME`."""

    pretrained: bool = setting(True, "start from the stored weights; false: the same architecture, with random weights")

    def __post_init__(self) -> None:
        check(self, "hf")


def build_hf(name: str, settings: HfSettings, num_classes: int, image_size: ImageSize | None) -> nn.Module:
    """Return the classifier `hf:PATH_OR_NAME`; its head is redrawn if it does not have `num_classes` outputs."""
    folder = _locate(name)
    if settings.pretrained:
        _weight_files(name, folder)
    try:
        with silent_transformers(name) as transformers:
            config = transformers.AutoConfig.from_pretrained(
                folder, num_labels=num_classes, trust_remote_code=False, local_files_only=True
            )
            channels: object = config.to_dict().get("num_channels")
            if image_size is not None and isinstance(channels, int) and channels != image_size[0]:
                raise RegunError(
                    f"{name} takes images of {channels} channels, but the data has {image_size[0]} "
                    f"(image_size {image_size}). Convert the images, or choose another model."
                )
            classifiers = transformers.AutoModelForImageClassification
            if not settings.pretrained:
                return TransformersAdapter(classifiers.from_config(config, trust_remote_code=False)).float()
            return TransformersAdapter(_load(name, folder, config, classifiers, num_classes)).float()
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as fault:
        reason = str(fault).strip().split("\n")[0]
        raise RegunError(
            f"{folder} cannot be loaded as an image classifier: {type(fault).__name__}: {reason} "
            "Give a directory that save_pretrained of a transformers image classifier has written."
        ) from fault


def describe_hf(name: str, settings: HfSettings) -> dict[str, Any]:
    """Return digests of the files that define the model: its configuration and, if loaded, its weights."""
    folder = _locate(name)
    files = {"config": _sha256(folder / "config.json")}
    weights = _weight_files(name, folder) if settings.pretrained else []
    return {**files, "weights": {file.name: _sha256(file) for file in weights}}


def _load(name: str, folder: Path, config: Any, classifiers: Any, num_classes: int) -> nn.Module:
    """Return the model with the stored weights; raise if weights besides the head are missing."""
    model, report = classifiers.from_pretrained(
        folder,
        config=config,
        use_safetensors=True,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        trust_remote_code=False,
        local_files_only=True,
    )
    drawn = {key if isinstance(key, str) else key[0] for key in (*report["missing_keys"], *report["mismatched_keys"])}
    # only the head may be redrawn: other random weights would pass for trained ones
    lost = sorted(k for k, p in model.named_parameters() if k in drawn and p.shape[0] != num_classes)
    if lost:
        raise RegunError(
            f"the weights in {folder} do not fit its config.json: {len(lost)} parameters besides the head are missing "
            f"or of another size, such as {lost[0]}. Set pretrained=false for fresh weights, or repair {name}."
        )
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()  # they may be memory-mapped from a file that can change
    return model


def _locate(name: str) -> Path:
    """Return the local directory of a model; a name on the hub is downloaded (or read from the local cache) first."""
    place = name.removeprefix(PREFIX)
    folder = Path(place).expanduser()
    if not folder.is_dir():
        folder = _download(place)
    if not (folder / "config.json").is_file():
        raise RegunError(f"{folder} has no config.json. Give a directory written by save_pretrained.")
    return folder


def _download(name: str) -> Path:
    """Return the local copy of a model of the hub."""
    if not HUB_NAME.fullmatch(name):
        raise RegunError(
            f"there is no directory {name!r} to load a model from. Write hf:PATH with an existing directory, "
            "or hf:OWNER/NAME for a model of the Hugging Face hub."
        )
    with silent_transformers(PREFIX + name):
        try:
            hub = importlib.import_module("huggingface_hub")
            return Path(hub.snapshot_download(name, allow_patterns=FILES))
        except Exception as fault:  # the network fails in many ways, each with another exception
            raise RegunError(
                f"there is no directory {name!r}, and no such model could be downloaded from the Hugging Face hub "
                f"({type(fault).__name__}). Check the name and the network; without a network, copy the model's "
                "directory here and write hf:PATH."
            ) from fault


def _weight_files(name: str, folder: Path) -> list[Path]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise RegunError(
            f"{folder} has no model*.safetensors; pickled weights (.bin, .pt) are never loaded, because they can run "
            f"code. Save the model again with save_pretrained, or set pretrained=false for {name}."
        )
    return files


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
