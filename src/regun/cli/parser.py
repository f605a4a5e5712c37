"""The command line, put together from its commands; imports nothing heavy so that `regun --help` is quick."""

import argparse
from importlib.metadata import version

from regun.cli.arguments import EXIT_CODES
from regun.cli.audit import add_audit
from regun.cli.demo import add_demo
from regun.cli.forget import add_forget
from regun.cli.lists import add_lists
from regun.cli.store import add_store
from regun.cli.study import add_study, add_tradeoff
from regun.cli.train import add_train
from regun.cli.tune import add_tune
from regun.cli.unlearn import add_unlearn
from regun.cli.verify import add_verify


def build_parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES.items())
    parser = argparse.ArgumentParser(
        prog="regun",
        description="Remove the influence of chosen training examples from a trained classifier, and show how well.",
        epilog=f"Exit codes:\n{codes}\n\nExample:\n  regun demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"regun {version('regun')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        add_demo,
        add_train,
        add_unlearn,
        add_tune,
        add_audit,
        add_forget,
        add_verify,
        add_study,
        add_tradeoff,
        add_store,
        add_lists,
    ):
        add(commands)
    return parser
