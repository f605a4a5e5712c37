"""Forget some texts of a Hugging Face text classifier.

The model is a tiny BERT built from a configuration (nothing is downloaded); the data set gives token ids of different
lengths and the loaders' collate function pads them, as with a tokenizer. Run: python docs/howto/hf_text.py

One label in ten is wrong, so the model must learn those by heart, and the attack on its loss finds what it was trained
on. ReGUn moves that number to a retrained model's and keeps the accuracy on new texts.
"""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from transformers import BertConfig, BertForSequenceClassification

import regun

TOPICS, WORDS = 4, 400
FORGET = 60


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


def loader(data: Dataset) -> DataLoader:
    return DataLoader(data, batch_size=32, shuffle=True, collate_fn=pad, generator=torch.Generator().manual_seed(0))


def trained(data: DataLoader, seed: int) -> torch.nn.Module:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=TOPICS, **sizes)).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(12):
        for batch in data:
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
    return model


def main() -> dict[str, dict[str, float]]:
    texts = Texts(600, seed=1)
    forget, retain = loader(Subset(texts, range(FORGET))), loader(Subset(texts, range(FORGET, 600)))
    heldout, test = loader(Texts(300, seed=2)), loader(Texts(300, seed=3))
    base, retrained = trained(loader(texts), seed=0), trained(retain, seed=1)
    settings = {"optimizer": "adamw", "lr": 1e-3, "epochs": 6, "w": 0.8}
    settings |= {"batch_size": 16, "retain_batch": 32, "granularity": "class"}
    outcome = regun.unlearn(base, forget=forget, retain=retain, heldout=heldout, settings=settings)
    results = {}
    for name, model in (("base", base), ("ReGUn", outcome.model), ("retrained", retrained)):
        numbers = regun.audit(model, forget=forget, retain=retain, test=test).numbers
        results[name] = {what: numbers[what].value for what in ("forget_acc", "test_acc", "smia_auc")}
        print(f"{name:10}" + "".join(f"  {what} {value:5.1f}" for what, value in results[name].items()))
    return results


if __name__ == "__main__":
    main()
