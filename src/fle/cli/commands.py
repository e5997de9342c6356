"""The commands and their options."""

from dataclasses import dataclass, replace

from fle import models
from fle.cli import SUMMARIES
from fle.cli.options import (
    NONE,
    Option,
    bound_level,
    discount,
    interval_level,
    name_and_value,
    requirement,
    risk_measure,
    seconds,
    share,
    size,
    weights,
    whole,
)
from fle.data.readers.coding import MISSING
from fle.data.readers.columns import UNITS
from fle.returns.measures import known_forms

MODELS = ("auto", *models.names())
POLICY_HELP = "an ONNX file, behaviour, columns or columns:PREFIX, or module:function"


@dataclass(frozen=True)
class Command:
    """A command; `module` is imported only when it runs, and has a function of its name."""

    name: str
    module: str
    usage: str
    examples: str
    groups: tuple[tuple[str, tuple[Option, ...]], ...]

    @property
    def summary(self) -> str:
        """What it is for."""
        return SUMMARIES[self.name]

    @property
    def options(self) -> tuple[Option, ...]:
        """All options, in the order of the help."""
        return tuple(option for _, options in self.groups for option in options)


DATA = Option(
    "data",
    "Parquet, CSV, Arrow, npz or HDF5 files, a folder of them, or a Minari data set",
    form="files",
    metavar="DATA",
    required=True,
)
COLUMNS = (
    Option(
        "observation",
        "observation columns: a name, a prefix or a pattern; repeatable",
        "list",
        metavar="COLUMN",
    ),
    Option("action", "action columns; repeatable", "list", metavar="COLUMN"),
    Option(
        "reward",
        "reward columns; several make a vector return; repeatable",
        "list",
        metavar="COLUMN",
    ),
    Option("episode", "the column of episode ids", metavar="COLUMN"),
    Option("step", "the column that orders the rows of an episode", metavar="COLUMN"),
    Option(
        "terminated",
        "the column that says that an episode ended, or `true` if every row is one; of several, any"
        " does; repeatable",
        "list",
        metavar="COLUMN",
    ),
    Option(
        "truncated",
        "the column that says that it was cut off; of several, any does; repeatable",
        "list",
        metavar="COLUMN",
    ),
    Option(
        "next_observation",
        "next observation columns, if logged; repeatable",
        "list",
        metavar="COLUMN",
    ),
    Option("weight", "the column of row weights", metavar="COLUMN"),
    Option(
        "propensity",
        "the logged action's probability or density, or a column per action; repeatable",
        "list",
        metavar="COLUMN",
    ),
    Option("probability", "columns of the policy `columns`; repeatable", "list", metavar="COLUMN"),
    Option(
        "number_of_actions",
        "how many discrete actions there are; makes whole numbers actions",
        kind=whole(1),
        metavar="N",
    ),
    Option(
        "action_labels",
        "all actions in order, where the column holds text; repeatable",
        "list",
        metavar="LABEL",
    ),
    Option(
        "category",
        "observation columns of numbers that are categories; repeatable",
        "list",
        metavar="COLUMN",
    ),
    Option("missing", "what to do about missing observations", choices=MISSING, default="refuse"),
    Option("elapsed", "a feature: time since the row before, in", choices=tuple(UNITS)),
)
# What only the whole log tells.
WHOLE_LOG = ("category", "missing")
POLICY = Option("policy", POLICY_HELP, metavar="P", required=True)
POLICY_SETTINGS = (
    Option("policy_input", "name of the ONNX input", metavar="NAME"),
    Option(
        "policy_output",
        "what the ONNX outputs are, such as logits=output_0; repeatable",
        "list",
        metavar="ROLE=NAME",
    ),
    Option("policy_timeout", "how long it may take in total", "value", seconds, "SECONDS"),
    Option(
        "policy_memory",
        "how much memory its process may take, as 512M or 4G (default: 4G)",
        "value",
        size,
        "SIZE",
    ),
    Option(
        "allow_code",
        "let module:function import and run Python code; not for --config",
        "switch",
        typed="whether code may run",
    ),
    Option(
        "action_draws",
        "actions drawn at each observation",
        "value",
        whole(1),
        "N",
        default=16,
    ),
)
PROBLEM = (
    Option("gamma", "discount factor; below 1 unless there is a horizon", "value", discount),
    Option("horizon", "number of steps of an episode", "value", whole(1), "STEPS"),
)
FIT = (
    Option("model", "the return model", choices=MODELS, default="auto"),
    Option("hyperparameter", "of the model, repeatable", "table", name_and_value, "NAME=V"),
    Option(
        "recipe",
        "setting of the training, such as steps=500; repeatable",
        "table",
        name_and_value,
        "NAME=V",
    ),
    Option("stages", "stages of a discounted problem", "value", whole(1), "N"),
    Option(
        "rows",
        "which stages a row serves, every one, that of its step, or one",
        choices=("all", "step", "split"),
    ),
    Option("seed", "the same seed gives the same result", "value", whole(0), "N", default=0),
)
OPINIONS = (
    Option(
        "no_second_opinions",
        "do not ask other estimators about the same return",
        "switch",
    ),
)
CALIBRATION = (
    Option(
        "calibration",
        "predict held-out episodes of the logging policy, by one more fit",
        "switch",
    ),
)
QUICK = Option(
    "quick",
    "a first look within half a minute: fewer steps, no second opinions, no intervals",
    "switch",
)
REPLICATES = Option(
    "replicates",
    "fits to resampled episodes that intervals are made from",
    "value",
    whole(2),
    "N",
    default=10,
)
LEVEL = Option(
    "interval",
    "level of intervals, from fits to resampled episodes that take two to three times as long as"
    " the estimate, which is shown before; or none (default: 0.9, and none with --quick)",
    "value",
    interval_level,
    "LEVEL",
)
INTERVAL = (LEVEL, REPLICATES)
# For every policy they would take as long again as for one.
INTERVAL_OF_MANY = (
    replace(
        LEVEL,
        help="level of intervals, also of differences, such as 0.9; each policy takes three to four"
        " times as long",
        default=NONE,
    ),
    REPLICATES,
)
ANYWAY = Option("anyway", "give numbers although the data hardly covers the policy", "switch")
WEIGHTS = Option(
    "weights", "for several rewards: their weights in a sum, as 1,0.5", "value", weights
)
SIGN_KEY = Option(
    "sign_key",
    "a file with a key that signs the run, or checks its signature; not for --config",
    metavar="FILE",
)
RUN_FILES = (
    Option("out", "run directory; a run that was stopped goes on there", metavar="RUN"),
    Option("resume", "from which checkpoint", choices=("latest", "previous"), default="latest"),
    Option("no_copy", "keep no copy of the data in the run directory", "switch"),
    SIGN_KEY,
)
EARLIER = Option(
    "from",
    "go on from a run of a shorter log; what is not said is as there",
    metavar="RUN",
)
JOBS = (
    Option(
        "jobs", "fits at a time, each in a process on a core of its own", "value", whole(1), "N"
    ),
    Option(
        "cluster",
        "carry out the fits on a Ray cluster: auto, host:port or ray://host:port; needs --out",
        metavar="ADDRESS",
        # It is sent the log, and its answers are unpickled.
        typed="which machines are asked",
    ),
    Option("job_cpus", "cores that a fit asks of the cluster", "value", share, "N", default=1.0),
    Option("job_gpus", "devices that a fit asks of the cluster", "value", share, "N", default=0.0),
    Option(
        "slurm",
        "write the fits as an array of SLURM to this script, and end; needs --out",
        metavar="FILE",
        typed="where a script is written",
    ),
)
MEMORY = Option(
    "memory",
    "ceiling, as 4G: what would take more is refused before it begins (default: what is left)",
    "value",
    size,
    "SIZE",
)
JSON = Option("json", "print one JSON document and nothing else", "switch")
CONFIG = Option("config", "a TOML file with any of these options", metavar="FILE")

WRITE = Option(
    "write", "write what each column is to a new TOML file, for --config", metavar="FILE"
)

CHECK = Command(
    "check",
    "fle.cli.check_command",
    "fle check DATA [--policy P] [options]",
    """\
  fle check logs.parquet
  fle check logs/ --observation 'obs_*' --terminated done
  fle check visits.csv --step date --missing forward --write mapping.toml
  fle check logs.parquet --policy policy.onnx --json""",
    (
        ("data", (DATA, *COLUMNS)),
        ("policy", (Option("policy", POLICY_HELP, metavar="P"), *POLICY_SETTINGS)),
        ("output", (WRITE, MEMORY, JSON, CONFIG)),
    ),
)
EVALUATE = Command(
    "evaluate",
    "fle.cli.evaluate_command",
    "fle evaluate DATA --policy P (--gamma G | --horizon STEPS) [options]",
    """\
  fle evaluate logs.parquet --policy policy.onnx --gamma 0.99 --out run/
  fle evaluate logs.parquet --policy policy.onnx --gamma 0.99 --plan
  fle evaluate logs.csv --policy behaviour --horizon 20 --measure below:-5
  fle evaluate logs.parquet --policy columns --gamma 0.95 --json > result.json
  fle evaluate --config run/run.toml --seed 1 --out other/
  fle evaluate grown.parquet --from run/ --out next/
  fle evaluate logs.parquet --policy p.onnx --gamma 0.9 --out run/ --jobs 8""",
    (
        ("data", (DATA, *COLUMNS)),
        ("policy", (POLICY, *POLICY_SETTINGS)),
        ("problem", PROBLEM),
        ("fit", (EARLIER, QUICK, *FIT, *INTERVAL, *OPINIONS, *CALIBRATION)),
        (
            "output",
            (
                *RUN_FILES,
                Option(
                    "measure",
                    f"one more row of the table, such as cvar:0.01; repeatable; {known_forms()}",
                    "list",
                    risk_measure,
                ),
                WEIGHTS,
                ANYWAY,
                Option("plan", "print what would be done, and train nothing", "switch"),
                MEMORY,
                JSON,
                CONFIG,
            ),
        ),
        ("jobs", JOBS),
    ),
)
COMPARE = Command(
    "compare",
    "fle.cli.compare_command",
    "fle compare DATA --policy A --policy B (--gamma G | --horizon STEPS) [options]",
    """\
  fle compare logs.parquet --policy old.onnx --policy new.onnx --gamma 0.99 --by cvar:0.1
  fle compare logs.parquet --policy behaviour --policy new.onnx --horizon 20 --out runs/
  fle compare logs.parquet --policy a.onnx --policy b.onnx --gamma 0.9 --weights 1,-0.2
  fle compare logs.parquet --policy 'policies/*.onnx' --gamma 0.99 --budget 12""",
    (
        ("data", (DATA, *COLUMNS)),
        (
            "policies",
            (
                Option(
                    "policy",
                    f"{POLICY_HELP}; once for each policy, or a folder or pattern of ONNX files, a"
                    " TOML table of names, columns:PREFIX*",
                    "list",
                    str,
                    "P",
                    required=True,
                ),
                *POLICY_SETTINGS,
            ),
        ),
        ("problem", PROBLEM),
        ("fit", (QUICK, *FIT, *INTERVAL_OF_MANY, *OPINIONS)),
        (
            "output",
            (
                Option(
                    "by",
                    f"what to rank by, such as cvar:0.1; {known_forms()}",
                    "value",
                    risk_measure,
                    "MEASURE",
                    default=risk_measure("mean"),
                ),
                Option(
                    "budget",
                    "the most full fits: of more policies, all get a cheap look, and those that may"
                    " be the best are fitted",
                    "value",
                    whole(1),
                    "N",
                ),
                *RUN_FILES,
                WEIGHTS,
                ANYWAY,
                MEMORY,
                JSON,
                CONFIG,
            ),
        ),
        ("jobs", JOBS),
    ),
)
GATE = Command(
    "gate",
    "fle.cli.small_commands",
    "fle gate DATA --policy P (--gamma G | --horizon STEPS) --require R [options]",
    """\
  fle gate logs.parquet --policy new.onnx --gamma 0.99 --require 'mean >= behaviour'
  fle gate logs.parquet --policy new.onnx --horizon 20 --require 'cvar:0.1 >= 12' \\
      --require 'loss <= 0.05' --level 0.99 --junit gate.xml --json""",
    (
        ("data", (DATA, *COLUMNS)),
        ("policy", (POLICY, *POLICY_SETTINGS)),
        ("problem", PROBLEM),
        (
            "decision",
            (
                Option(
                    "require",
                    "MEASURE [of REWARD] >= BOUND, or <=; a bound is a number or behaviour;"
                    f" repeatable; {known_forms()}",
                    "list",
                    requirement,
                    "R",
                    required=True,
                ),
                Option(
                    "level",
                    "of the confidence bound that decides",
                    "value",
                    bound_level,
                    "LEVEL",
                    default=0.95,
                ),
                REPLICATES,
                WEIGHTS,
            ),
        ),
        ("fit", (*FIT, *OPINIONS)),
        ("output", (Option("junit", "a JUnit file", metavar="FILE"), MEMORY, JSON, CONFIG)),
    ),
)
REPORT = Command(
    "report",
    "fle.cli.small_commands",
    "fle report RUN [options]",
    """\
  fle report run/
  fle report run/ --out for-a-colleague.html --title 'New policy'""",
    (
        (
            "run",
            (
                Option("run", "a run directory", "files", metavar="RUN", required=True),
                Option("out", "the file (default: RUN/report.html)", metavar="FILE"),
                Option("title", "title of the page", metavar="TEXT"),
                SIGN_KEY,
            ),
        ),
        ("output", (MEMORY, JSON, CONFIG)),
    ),
)
DEMO = Command(
    "demo",
    "fle.cli.small_commands",
    "fle demo [options]",
    """\
  fle demo
  fle demo --example reservoir --out demo/reservoir""",
    (
        (
            "run",
            (
                Option("example", "which of the bundled data sets (default: the first)"),
                Option("out", "run directory", metavar="RUN", default="demo"),
            ),
        ),
        ("fit", (QUICK, *FIT, *INTERVAL, *OPINIONS, *CALIBRATION)),
        ("output", (MEMORY, JSON, CONFIG)),
    ),
)
BENCH = Command(
    "bench",
    "fle.cli.small_commands",
    "fle bench [options]",
    """\
  fle bench
  fle bench --full --models
  fle bench --task inventory-steady --task taxi-good --seeds 3 --no-peers""",
    (
        (
            "tasks",
            (
                Option("full", "all tasks that peers can be asked, three seeds", "switch"),
                Option("task", "a task by name; repeatable", "list", metavar="TASK"),
                Option("rows", "rows of every log", "value", whole(1), "N"),
                Option("seeds", "logs of every task", "value", whole(1), "N"),
            ),
        ),
        (
            "run",
            (
                Option("models", "other models of ours too", "switch"),
                Option("no_peers", "ours alone, and nothing to install", "switch"),
                Option("jobs", "questions at a time", "value", whole(1), "N", default=2),
                MEMORY,
            ),
        ),
    ),
)
JOB = Command(
    "job",
    "fle.cli.small_commands",
    "fle job FILE NUMBER [NUMBER ...]",
    """\
  fle job out/.jobs/jobs-0123456789abcdef.json 0""",
    (
        (
            "job",
            (
                Option(
                    "job",
                    "a file of jobs, and the numbers of those that are carried out",
                    "files",
                    metavar="FILE NUMBER",
                    required=True,
                ),
            ),
        ),
        ("output", (MEMORY,)),
    ),
)
COMPLETION = Command(
    "completion",
    "fle.cli.small_commands",
    "fle completion bash|zsh|fish",
    """\
  fle completion bash > ~/.local/share/bash-completion/completions/fle
  fle completion zsh > ~/.zfunc/_fle
  fle completion fish > ~/.config/fish/completions/fle.fish""",
    (("shell", (Option("shell", "bash, zsh or fish", "files", metavar="SHELL", required=True),)),),
)
PREPARE = Command(
    "prepare",
    "fle.cli.check_command",
    "fle prepare SOURCE OUT [options]",
    """\
  fle prepare logs/ log/
  fle prepare 's3://bucket/logs/*.parquet' log/ --episode trip --step minute
  fle evaluate log/ --policy new.onnx --gamma 0.99""",
    (
        (
            "data",
            (
                Option(
                    "data",
                    "Parquet files, folders or addresses, and then the folder that is written",
                    form="files",
                    metavar="SOURCE OUT",
                    required=True,
                ),
                *(column for column in COLUMNS if column.name not in WHOLE_LOG),
            ),
        ),
        ("output", (MEMORY, JSON, CONFIG)),
    ),
)
COMMANDS = (PREPARE, CHECK, EVALUATE, COMPARE, GATE, REPORT, DEMO, BENCH, JOB, COMPLETION)
