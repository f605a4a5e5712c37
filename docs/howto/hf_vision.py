"""Forget some images of a Hugging Face vision model.

A tiny ViT built from a configuration (nothing is downloaded). It takes `pixel_values` and returns an object with
`.logits`; a mapping of tensors and labels is all regun needs. Run: python docs/howto/hf_vision.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

import regun

Images = tuple[dict[str, Tensor], Tensor]


def images() -> dict[str, Images]:
    pixels, labels = load_digits(return_X_y=True)
    noisy = pixels / 8 - 1 + np.random.default_rng(0).normal(0, 0.5, pixels.shape)
    x, y = torch.tensor(noisy, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    cuts = {"train": (0, 700), "forget": (0, 60), "retain": (60, 700), "heldout": (700, 1000), "test": (1000, 1797)}
    return {name: ({"pixel_values": x[a:b]}, y[a:b]) for name, (a, b) in cuts.items()}


def trained(data: Images) -> nn.Module:
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes)
        model = ViTForImageClassification(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        (inputs, labels) = data
        for _ in range(25):
            for rows in torch.randperm(len(labels)).split(64):
                optimizer.zero_grad()
                logits = model(pixel_values=inputs["pixel_values"][rows]).logits
                nn.functional.cross_entropy(logits, labels[rows]).backward()
                optimizer.step()
    return model


def main() -> dict[str, dict[str, float]]:
    data = images()
    base = trained(data["train"])
    known = {name: data[name] for name in ("forget", "retain", "heldout")}
    settings = {"optimizer": "adamw", "lr": 1e-3, "epochs": 6, "w": 0.8}
    settings |= {"batch_size": 16, "retain_batch": 64, "granularity": "class"}
    outcome = regun.unlearn(base, **known, settings=settings)
    results = {}
    for name, model in (("base", base), ("ReGUn", outcome.model)):
        numbers = regun.audit(model, **known, test=data["test"]).numbers
        results[name] = {what: numbers[what].value for what in ("forget_acc", "test_acc", "smia_auc")}
        print(f"{name:10}" + "".join(f"  {what} {value:5.1f}" for what, value in results[name].items()))
    return results


if __name__ == "__main__":
    main()
