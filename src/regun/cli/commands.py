"""The commands on one model and on the store, with their arguments and help; imports nothing heavy."""

from regun.cli.arguments import (
    REQUESTS,
    Commands,
    add_json,
    add_machine,
    add_number,
    add_options,
    add_setup,
    add_store_option,
    command,
    number,
    whole,
)

BUDGET = "--budget steps=N|samples=N"


def add_train(commands: Commands) -> None:
    parser = command(
        commands,
        "train",
        "train a model on a data set, or find it in the store",
        "train:run",
        "regun train --data cifar10,limit=5000 --data-dir ~/data --model resnet18,width=16 --recipe resnet18-small",
    )
    add_setup(parser)
    add_options(parser, {"--without REQUEST": f"train without these, as a retrained model is: {REQUESTS}"})
    add_number(parser, "--seed N", whole(), 0, "training seed: initial weights, order, augmentation (default 0)")
    add_number(parser, "--max-steps N", whole(), None, "stop after N steps, to try a configuration")
    add_machine(parser)


def add_unlearn(commands: Commands) -> None:
    parser = command(
        commands,
        "unlearn",
        "remove the influence of some training examples from a trained model",
        "unlearn:run",
        "regun unlearn --base 3f2a --forget 0.1 --method regun,w=0.3,lr=0.01",
    )
    from_file = "a safetensors file (then say --data, --model and the split)"
    add_options(
        parser,
        {
            "--base KEY|FILE": f"the trained model: its key in the store, or {from_file}",
            "--forget REQUEST": f"what to forget: {REQUESTS}",
        },
        required=True,
    )
    parser.add_argument(
        "--method",
        default="auto",
        metavar="NAME[@PRESET][,KEY=VALUE...]",
        help="method (see `regun methods`); default auto, which finds its settings",
    )
    add_options(parser, {"--settings FILE": "settings by `regun tune --out`; those named in --method win over them"})
    tune = "try N settings and keep the best; needs no retrained model, but unseen examples to judge by"
    add_number(parser, "--tune N", whole(high=100_000), None, tune)
    add_options(parser, {BUDGET: "run an iterative method to exactly this budget"})
    parser.add_argument("--keep", default="last", choices=("last", "best"), help="which epoch to keep (default last)")
    parser.add_argument(
        "--criterion",
        default="val_accuracy",
        metavar="NAME",
        help="with --keep best: val_accuracy (default), val_loss, or unseen_error (forgotten examples are misjudged "
        "like unseen ones)",
    )
    teacher = "a model that never saw the records, for the methods auto and regun,source=given"
    add_options(parser, {"--teacher KEY": teacher})
    add_number(parser, "--seed N", whole(), 0, "seed of the unlearning run (default 0)")
    add_options(parser, {"--out FILE": "also write the weights to this safetensors file"})
    add_setup(parser)
    add_machine(parser)


def add_tune(commands: Commands) -> None:
    parser = command(
        commands,
        "tune",
        "search the settings of unlearning methods, with a retrained model or without; test data are never used",
        "tune:run",
        "regun tune --base 3f2a --forget 0.1 --methods regun,finetune --trials 20 --objective reference --out tuned",
    )
    add_options(
        parser,
        {
            "--base KEY|FILE": "the trained model, as in `regun unlearn`",
            "--forget REQUEST": f"what to forget: {REQUESTS}",
        },
        required=True,
    )
    methods = "methods separated by commas, each NAME[@PRESET][,KEY=VALUE...]; a setting given stays as it is"
    add_options(parser, {"--methods NAMES": f"{methods}; default: all but retrain"})
    add_number(parser, "--trials N", whole(high=100_000), 20, "settings to try for each (default 20)")
    parser.add_argument(
        "--objective",
        default="gap",
        metavar="NAME",
        help="gap: distance to Retrain on validation, needs retrained models in the store (default); "
        "reference: forgotten examples look unseen at the least loss of accuracy, needs none",
    )
    add_options(
        parser,
        {
            "--pareto": "search the front of forgetting against utility, not one score",
            "--retrain KEY": "objective gap: the retrained model; default: found in the store",
            "--references KEYS": "objective gap: further retrained models, separated by commas; default: found",
            BUDGET: "the same budget for every iterative method",
        },
    )
    add_number(parser, "--seed N", whole(), 0, "seed of the search and of its runs (default 0)")
    add_options(parser, {"--out DIR": "write tuned.toml, all trials, figures and a report to this folder"})
    parser.set_defaults(teacher=None)  # of `regun unlearn`, which starts from the same
    add_setup(parser)
    add_machine(parser)


def add_audit(commands: Commands) -> None:
    parser = command(
        commands,
        "audit",
        "measure how well a model has forgotten, with intervals and, given retrained models, a noise floor",
        "audit:run",
        "regun audit 9c41 --risks risks.csv",
    )
    parser.add_argument(
        "target",
        metavar="KEY|FILE|MODULE:FUNCTION",
        help="any model of the store, a safetensors file, or a function that returns a trained model",
    )
    forget = "what was to be forgotten (known for unlearned and retrained models of the store)"
    add_options(
        parser,
        {
            "--base KEY": "the model before unlearning (known for unlearned models of the store)",
            "--forget REQUEST": f"{forget}: {REQUESTS}",
            "--retrain KEY": "the retrained model to compare with; default: found in the store",
            "--references KEYS": "further retrained models, separated by commas; default: found",
            "--alone": "use no retrained models, even if the store has some",
        },
    )
    outs = "train N on the retain set for a quarter of the epochs (4 do well), to see how much influence is left"
    add_number(parser, "--out-models N", whole(0, 100), 0, f"without retrained models: {outs}")
    add_options(
        parser,
        {
            "--attacks NAMES": "attacks, separated by commas: names or file.py:function; default: all that can run",
            "--metrics NAMES": "further numbers, separated by commas: names or file.py:function",
        },
    )
    add_number(parser, "--bootstrap N", whole(0, 1_000_000), 1000, "resamples for the intervals (default 1000)")
    shadows = "also run U-LiRA with N shadow trainings and unlearning runs (unlearned models of the store; costly)"
    add_number(parser, "--shadows N", whole(0, 10_000), 0, shadows)
    add_options(
        parser,
        {
            "--method FILE": "with --shadows: your own method, where the model was unlearned with one",
            "--relearn": "also train the model, and the retrained ones, on retained examples alone: what comes back?",
            "--risks FILE": "write forgotten examples, and retained ones that were exposed, to this .csv or .json file",
            "--all": "show every number, not only the main ones",
        },
    )
    add_setup(parser)
    add_machine(parser)


def add_store(commands: Commands) -> None:
    parser = command(
        commands, "store", "look into the store, check it, clean it up", "store:list_all", "regun store verify"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = "list what it holds, a line each; exit code 1 if some of it is damaged"
    listed = command(actions, "list", listing, "store:list_all", "regun store list --json")
    manifest = "show what is known of one entry: its manifest"
    shown = command(actions, "show", manifest, "store:show", "regun store show 3f2a")
    shown.add_argument("key", help="the key, or enough of its first digits")
    verify = "read everything and name what is damaged; exit code 1 if something is"
    verified = command(actions, "verify", verify, "store:verify", "regun store verify --store ~/models")
    add_options(verified, {"--quick": "look at manifests and sizes only, not at every byte"})
    collect = "remove temporary files and snapshots of finished runs"
    collected = command(actions, "gc", collect, "store:gc", "regun store gc --dry-run")
    add_options(collected, {"--dry-run": "only say what would be removed"})
    partial = "also drop snapshots of unfinished runs older than D days"
    add_number(collected, "--partial-days D", number(low=0), None, partial)
    for action in (listed, shown, verified, collected):
        add_store_option(action)
        add_json(action)


def add_lists(commands: Commands) -> None:
    for name, help in (
        ("data", "list the data sets and their settings"),
        ("models", "list the models and their settings"),
        ("recipes", "list the training recipes and their settings"),
    ):
        add_json(command(commands, name, help, f"lists:{name}", f"regun {name}"))
    help = "list the unlearning methods, or one with its settings and ranges"
    parser = command(commands, "methods", help, "lists:methods", "regun methods regun")
    parser.add_argument("name", nargs="?", help="a method, to see all of it")
    add_json(parser)
