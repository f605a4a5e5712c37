"""`regun demo`: the whole job on data that ships with a dependency."""

import argparse

from regun.cli.options import use_threads
from regun.cli.workshop import carried_out, finish, folder_of, open_workshop
from regun.study import Workshop


def run(args: argparse.Namespace) -> int:
    """The study `digits`, with what to do next."""
    shop = open_workshop(args)
    out = folder_of(args, shop)
    use_threads(args.threads)
    ran = carried_out(args, shop, out)
    if not args.json:
        sizes = shop.plan.sizes[shop.study.forget[0]]
        print(
            f"\n{sizes['forget']} of {sizes['forget'] + sizes['retain']:,} training digits are to be forgotten. How "
            f"far is each method from a model that never saw them (Retrain)?\n"
        )
    code = finish(shop, ran, out, as_json=args.json)
    if not args.json:
        _next(shop, args.store)
    return code


def _next(shop: Workshop, store: str) -> None:
    task = next(task for task in shop.plan.tasks.values() if task.kind == "unlearn")
    model = shop.model(task.id)
    key = model.key[:12] if model else "KEY"
    lines = {
        f"regun audit {key} --store {store}": "every number with its interval and meaning",
        f"regun tradeoff digits --store {store}": "sweep the weight of the retain loss",
        "regun study show digits > mine.toml": "a study of your own to change and run",
        "regun methods regun": "what can be set",
        "README.md": "how to use it on your own model",
    }
    width = max(map(len, lines))
    print("\nNext:\n" + "\n".join(f"  {command.ljust(width)}  {what}" for command, what in lines.items()))
