"""`regun demo`: the whole job on data that ships with a dependency."""

import argparse

from regun.cli.options import use_threads
from regun.cli.workshop import carried_out, finish, folder_of, open_context
from regun.experiments.study import OpenStudy
from regun.experiments.study.tasks import Unlearn


def run(args: argparse.Namespace) -> int:
    """The study `digits`, with what to do next."""
    opened = open_context(args)
    out = folder_of(args, opened)
    use_threads(args.threads)
    summary = carried_out(args, opened, out)
    if not args.json:
        sizes = opened.plan.sizes[opened.study.forget[0]]
        print(
            f"\n{sizes['forget']} of {sizes['forget'] + sizes['retain']:,} training digits are to be forgotten. How "
            f"far is each method from a model that never saw them (Retrain)?\n"
        )
    code = finish(opened, summary, out, as_json=args.json)
    if not args.json:
        _next(opened, args.store)
    return code


def _next(opened: OpenStudy, store: str) -> None:
    model = opened.plan.of_type(Unlearn)[0].result(opened.ctx)
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
