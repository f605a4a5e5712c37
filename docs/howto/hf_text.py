"""Forget some texts of a Hugging Face text classifier that the Trainer has trained, and save it with a model card.

The model is a tiny BERT built from a configuration (nothing is downloaded); the data set gives token ids of different
lengths and a collate function pads them, as with a tokenizer. Run: python docs/howto/hf_text.py

One label in ten is wrong, so the model must learn those by heart, and the attack on its loss finds what it was trained
on. Unlearning moves that number to a retrained model's and keeps the accuracy on new texts.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import regun
from regun.auditing import Evaluation

TOPICS, WORDS, EPOCHS, FORGET = 4, 400, 12, 60


class Texts(Dataset):
    """Texts of 8 to 20 words; three words in ten are of their topic, the others of none."""

    def __init__(self, count: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        topics = draw.integers(0, TOPICS, count)
        self.labels = np.where(draw.random(count) < 0.1, draw.integers(0, TOPICS, count), topics)
        self.texts = [self.words(draw, topic) for topic in topics]

    def words(self, draw: np.random.Generator, topic: int) -> torch.Tensor:
        length = draw.integers(8, 21)
        own, any_topic = 100 + 50 * topic + draw.integers(0, 50, length), draw.integers(300, WORDS, length)
        return torch.from_numpy(np.where(draw.random(length) < 0.3, own, any_topic))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, i: int) -> dict:
        return {"input_ids": self.texts[i], "labels": int(self.labels[i])}


def pad(items: list[dict]) -> dict:
    ids = torch.nn.utils.rnn.pad_sequence([item["input_ids"] for item in items], batch_first=True)
    labels = torch.tensor([item["labels"] for item in items])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


def untrained(seed: int) -> torch.nn.Module:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=TOPICS, **sizes))


def trained(texts: Dataset, seed: int, folder: str) -> torch.nn.Module:
    settings = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": 32, "learning_rate": 1e-3, "seed": seed}
    quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    trainer = Trainer(
        model=untrained(seed),
        args=TrainingArguments(output_dir=folder, use_cpu=True, **settings, **quiet),
        train_dataset=texts,
        data_collator=pad,
    )
    trainer.train()
    return trainer.model


def main() -> tuple[regun.Outcome, Evaluation]:
    texts = Texts(600, seed=1)
    parts = {"forget": Subset(texts, range(FORGET)), "retain": Subset(texts, range(FORGET, 600))}
    parts |= {"heldout": Texts(300, seed=2), "test": Texts(300, seed=3)}
    sets = {name: DataLoader(part, batch_size=32, collate_fn=pad) for name, part in parts.items()}
    test = sets.pop("test")
    with tempfile.TemporaryDirectory() as folder:
        base, retrained = trained(texts, 0, folder), trained(parts["retain"], 1, folder)
        # the Trainer's defaults: linear schedule, no weight decay, gradients clipped to norm 1
        recipe = {"epochs": EPOCHS, "batch_size": 32, "optimizer": "adamw", "lr": 1e-3, "schedule": "linear"}
        recipe |= {"weight_decay": 0.0, "clip_norm": 1.0}
        outcome = regun.unlearn(base, **sets, rebuild=untrained, recipe=recipe)
        print(outcome, end="\n\n")
        report = regun.audit(outcome.model, before=base, retrained=retrained, **sets, test=test)
        print(report)
        outcome.model.save_pretrained(folder)
        card = regun.model_card(outcome, report, name="Topics of texts", library_name="transformers")
        Path(folder, "README.md").write_text(card, encoding="utf-8")
        again = BertForSequenceClassification.from_pretrained(folder)
        assert all(torch.equal(again.state_dict()[name], value) for name, value in outcome.model.state_dict().items())
    return outcome, report


if __name__ == "__main__":
    main()
