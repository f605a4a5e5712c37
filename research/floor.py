"""How often the verdict of the noise floor is wrong, and what it sees: simulated models, the whole evaluation.

    python research/floor.py [--repeats 200] [--models 3 5 9] [--forget 30 100 400]

Every example has a hardness, every model noise of its own on every example and a shift of its own; members are
remembered. `models` retrained ones (Retrain and the references) judge a further retrained one, one that has half of the
forget set left, and the base. Printed: in percent, how often each fails (of the retrained one: a false
alarm), and how often the base is not told. About 20 minutes on one core.
"""

import argparse
from collections import Counter
from collections.abc import Mapping

import numpy as np

from regun.auditing import Predictions, evaluate

SIZES = {"retain": 1000, "test": 1000, "heldout": 300, "val": 300}
MEMBERS = {"weak": 3.0, "strong": 6.0}
"""Log-odds that members reach at least, on average: a model that remembers little, and one that remembers much."""


class World:
    def __init__(self, rng: np.random.Generator, forget: int, shifts: float, member: float) -> None:
        self.rng, self.shifts, self.member = rng, shifts, member
        self.hard = {name: rng.normal(1.5, 2.5, size) for name, size in {**SIZES, "forget": forget}.items()}

    def model(self, members: float = 0.0) -> Mapping[str, Predictions]:
        """A model trained on retain and the first `members` of the forget set."""
        shift, made = self.rng.normal(0, self.shifts), {}
        for name, hard in self.hard.items():
            odds = hard + shift + self.rng.normal(0, 1.5, len(hard))
            count = {"retain": len(hard), "forget": round(members * len(hard))}.get(name, 0)
            odds[:count] = np.maximum(odds[:count], self.rng.normal(self.member, 1.0, count))
            logits = np.stack([odds, np.zeros_like(odds)], axis=1)
            made[name] = Predictions.from_logits(logits, np.zeros(len(odds), int), np.arange(len(odds)))
        return made


def rates(models: int, forget: int, shifts: float, member: float, repeats: int) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for number in range(repeats):
        world = World(np.random.default_rng([models, forget, int(100 * shifts), number]), forget, shifts, member)
        judges, base = [world.model() for _ in range(models)], world.model(1.0)
        for kind, model in (("retrained", world.model()), ("half left", world.model(0.5)), ("base", base)):
            told = evaluate(model, judges[0], judges[1:], before=base, attacks=["rmia"], bootstrap=0)
            found.setdefault(kind, Counter())[str(told.verdict)] += 1
            if kind == "retrained" and told.verdict == "failed":
                found.setdefault("by", Counter())[str(told.worst)] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--models", type=int, nargs="+", default=[3, 5, 9])
    parser.add_argument("--forget", type=int, nargs="+", default=[30, 100, 400])
    args = parser.parse_args()
    print("| models | forgotten | shifts | memory | retrained failed | half left failed | base failed | inconclusive |")
    print("|---" * 8 + "|")
    alarms: Counter[str] = Counter()
    for models in args.models:
        for forget in args.forget:
            for shifts, memory in ((0.0, "strong"), (0.3, "strong"), (0.1, "weak")):
                found = rates(models, forget, shifts, MEMBERS[memory], args.repeats)
                alarms += found.pop("by", Counter())
                failed = [100 * found[kind]["failed"] / args.repeats for kind in ("retrained", "half left", "base")]
                blind = 100 * found["base"]["inconclusive"] / args.repeats
                cells = [str(models), str(forget), str(shifts), memory, *(f"{v:.1f}" for v in (*failed, blind))]
                print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\n{args.repeats} repeats a row; what raised false alarms: {dict(alarms)}")


if __name__ == "__main__":
    main()
