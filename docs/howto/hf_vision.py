"""Forget some images of a Hugging Face vision model that the Trainer has trained, and load it again.

A tiny ViT built from a configuration (nothing is downloaded). It takes `pixel_values` and returns an object with
`.logits`; a mapping of tensors and labels is all regun needs. Run: python docs/howto/hf_vision.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import regun
from regun.auditing import Evaluation

Images = tuple[dict[str, Tensor], Tensor]
EPOCHS = 25


def images() -> dict[str, Images]:
    pixels, labels = load_digits(return_X_y=True)
    noisy = pixels / 8 - 1 + np.random.default_rng(0).normal(0, 0.5, pixels.shape)
    x, y = torch.tensor(noisy, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    cuts = {"train": (0, 700), "forget": (0, 60), "retain": (60, 700), "heldout": (700, 1000), "test": (1000, 1797)}
    return {name: ({"pixel_values": x[a:b]}, y[a:b]) for name, (a, b) in cuts.items()}


def untrained(seed: int) -> nn.Module:
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return ViTForImageClassification(ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes))


def trained(data: Images, seed: int, folder: str) -> nn.Module:
    inputs, labels = data
    items = [{"pixel_values": x, "labels": int(y)} for x, y in zip(inputs["pixel_values"], labels, strict=True)]
    settings = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": 64, "learning_rate": 2e-3, "seed": seed}
    quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    trainer = Trainer(
        model=untrained(seed),
        args=TrainingArguments(output_dir=folder, use_cpu=True, **settings, **quiet),
        train_dataset=items,
    )
    trainer.train()
    return trainer.model


def main() -> tuple[regun.Outcome, Evaluation]:
    data = images()
    known = {name: data[name] for name in ("forget", "retain", "heldout")}
    # the Trainer's defaults: linear schedule, no weight decay, gradients clipped to norm 1
    recipe = {"epochs": EPOCHS, "batch_size": 64, "optimizer": "adamw", "lr": 2e-3, "schedule": "linear"}
    recipe |= {"weight_decay": 0.0, "clip_norm": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        base = trained(data["train"], 0, folder)
        outcome = regun.unlearn(base, **known, rebuild=untrained, recipe=recipe)
        print(outcome, end="\n\n")
        report = regun.audit(outcome.model, before=base, **known, test=data["test"])
        print(report)
        outcome.model.save_pretrained(folder)
        card = regun.model_card(outcome, report, name="Noisy digits", library_name="transformers")
        Path(folder, "README.md").write_text(card, encoding="utf-8")
        again = ViTForImageClassification.from_pretrained(folder)
        assert all(torch.equal(again.state_dict()[name], value) for name, value in outcome.model.state_dict().items())
    return outcome, report


if __name__ == "__main__":
    main()
