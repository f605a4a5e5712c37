"""`regun demo`: the whole job on data that ships with a dependency."""

import argparse

from regun.cli.options import use_threads
from regun.cli.workshop import carried_out, finish, folder_of, open_context
from regun.experiments.study import StudyContext


def run(args: argparse.Namespace) -> int:
    """The study `digits`, with what to do next."""
    ctx = open_context(args)
    out = folder_of(args, ctx)
    use_threads(args.threads)
    ran = carried_out(args, ctx, out)
    if not args.json:
        sizes = ctx.plan.sizes[ctx.study.forget[0]]
        print(
            f"\n{sizes['forget']} of {sizes['forget'] + sizes['retain']:,} training digits are to be forgotten. How "
            f"far is each method from a model that never saw them (Retrain)?\n"
        )
    code = finish(ctx, ran, out, as_json=args.json)
    if not args.json:
        _next(ctx, args.store)
    return code


def _next(ctx: StudyContext, store: str) -> None:
    task = next(task for task in ctx.plan.tasks.values() if task.kind == "unlearn")
    model = ctx.model(task.id)
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
