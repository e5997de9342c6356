"""`fle gate`, `fle report`, `fle demo`, `fle bench`, `fle job` and `fle completion`."""

import argparse
import dataclasses
import subprocess
import sys
from pathlib import Path

from fle.cli import UsageError
from fle.cli.commands import CALIBRATION, EVALUATE, FIT, INTERVAL, OPINIONS, QUICK
from fle.cli.entry import build_parser, resolve, subparsers_of
from fle.cli.evaluate_command import (
    REPORT,
    Context,
    Truth,
    carry_out,
    draw_report,
    read_context,
    true_returns,
)
from fle.cli.inputs import planned, read_data_to_fit
from fle.cli.messages import DONE, NOT_MET, UNDECIDED, WRONG_INPUT, Messages, Outcome, data_words
from fle.errors import TrainingError, nearest
from fle.files import require_ours, write_atomically
from fle.screen import aligned, labelled, one_line

DEMO_FIT = (QUICK, *FIT, *INTERVAL, *OPINIONS, *CALIBRATION)
Parsers = dict[str, argparse.ArgumentParser]
# The tasks and the peers' scripts are part of the project, and not of what is installed.
BENCH_SCRIPT = Path("benchmarks") / "peers" / "bench.py"
LIMITS = ("rows", "seeds", "memory")
# How our files begin that may be written anywhere.
JUNIT, PAGE = b"<?xml", b"<!doctype html>"
CODES = {"met": DONE, "not met": NOT_MET, "undecided": UNDECIDED}


def report(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Load the run and write the page."""
    if len(options.run) > 1:
        raise UsageError(f"RUN: expected one run directory, got {len(options.run)}")
    from fle.fitting.run_contents import read_result
    from fle.fitting.runs import check_run, require_key, seal_run

    folder = Path(options.run[0])
    out = Path(options.out) if options.out else folder / REPORT
    if options.out:
        require_ours(out, PAGE)
    else:
        require_key(folder, options.sign_key)
    # The old page is not read, and may be drawn over whatever it says.
    listed = check_run(folder, key=options.sign_key, rewritten=(REPORT,))
    evaluation = read_result(folder, None)
    context = read_context(folder, listed)
    if options.title is not None:
        context = context or Context("", "", ())
        context = dataclasses.replace(context, title=options.title)
    truth = None
    if context is not None and context.example is not None:
        from fle import examples

        example = examples.load(context.example)
        truth = true_returns(Truth(example.name, example.truth), evaluation)
    path = draw_report(evaluation, out, context, messages, truth)
    if path is None:
        return Outcome((), {"report": None}, WRONG_INPUT)
    if not options.out:
        seal_run(folder, options.sign_key)
    return Outcome((f"report: {path}",), {"report": str(path)})


def demo(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Evaluate the example's policy as `fle evaluate` would, and set the truth beside it."""
    from fle import examples

    example = examples.load(options.example or examples.NAMES[0])
    given = {
        "data": [str(example.data_path)],
        "policy": str(example.policy_path),
        "gamma": example.gamma,
        "horizon": example.horizon,
        "out": options.out,
        **{option.name: getattr(options, option.name) for option in DEMO_FIT},
    }
    said = {name: value for name, value in given.items() if value is not None}
    told = resolve(EVALUATE, argparse.Namespace(**said))
    messages.answer((example.description, ""))
    return carry_out(told, messages, Truth(example.name, example.truth))


def job(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Carry out jobs of a file, each whatever becomes of the others."""
    path, *numbers = options.job
    wrong = [text for text in numbers if not text.isdecimal()]
    if wrong or not numbers:
        raise UsageError(f"expected FILE and whole numbers, got {' '.join(options.job)}")
    from fle.executors import reason, work

    directories, failed = [], []
    for number in map(int, numbers):
        try:
            directories.append(work(path, number))
        except Exception as error:
            failed.append(f"job {number} failed: {reason(error)}")
    if failed:
        raise TrainingError("; ".join(failed))
    return Outcome(tuple(directories), {"runs": directories})


def bench(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Run the script of the checkout that fle is installed from."""
    import fle

    # Only of the source that runs already: a folder one stands in may be anybody's.
    script = Path(fle.__file__).resolve().parents[2] / BENCH_SCRIPT
    if not script.exists():
        raise UsageError(
            f"fle bench: expected {BENCH_SCRIPT} beside the source of fle, found none; it is not"
            " part of the package, so install from a checkout: pip install --editable ."
        )
    told = [f"--jobs={options.jobs}"]
    told += [f"--{name}={value}" for name in LIMITS if (value := getattr(options, name))]
    told += ["--task", *options.task] if options.task else []
    for name in ("full", "models", "no_peers"):
        told += [f"--{name.replace('_', '-')}"] if getattr(options, name) else []
    command = [sys.executable, str(script), *told]
    code = subprocess.run(command, check=False).returncode  # noqa: S603
    return Outcome((), {}, code)


def completion(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Print the script of a shell."""
    writers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    shell = options.shell[0]
    if shell not in writers or len(options.shell) > 1:
        hint = nearest(shell, writers)
        raise UsageError(f"SHELL: expected bash, zsh or fish, got {' '.join(options.shell)}{hint}")
    parsers = subparsers_of(build_parser(["completion"]))
    return Outcome(tuple(writers[shell](parsers)))


def _flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _long(action: argparse.Action) -> str:
    return action.option_strings[-1]


def _choices(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    return [
        (_long(action), " ".join(str(choice) for choice in action.choices))
        for action in _flags(parser)
        if action.choices
    ]


def _bash(parsers: Parsers) -> list[str]:
    lines = [
        "_fle() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        "    if [ $COMP_CWORD -eq 1 ]; then",
        f'        words="{" ".join(parsers)} --help --version"',
        "    else",
        '        case "${COMP_WORDS[1]} $before" in',
    ]
    for name, parser in parsers.items():
        for flag, choices in _choices(parser):
            lines.append(f'            "{name} {flag}") words="{choices}" ;;')
    lines += ['            *) case "${COMP_WORDS[1]}" in']
    for name, parser in parsers.items():
        flags = " ".join(_long(action) for action in _flags(parser))
        shells = "bash zsh fish " if name == "completion" else ""
        lines.append(f'                {name}) words="{shells}{flags}" ;;')
    return [
        *lines,
        "            esac ;;",
        "        esac",
        "    fi",
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "# Where nothing of ours fits, the names of files do.",
        "complete -o default -o bashdefault -F _fle fle",
    ]


def _zsh(parsers: Parsers) -> list[str]:
    lines = ["#compdef fle", "_fle() {", "    local -a commands=("]
    for name, parser in parsers.items():
        lines.append(f"        {_quoted(f'{name}:{_summary(parser)}')}")
    lines += ["    )", "    if (( CURRENT == 2 )); then _describe command commands; return; fi"]
    lines += [
        "    local command=$words[2]",
        "    shift words; (( CURRENT-- ))",
        "    case $command in",
    ]
    for name, parser in parsers.items():
        lines.append(f"    {name}) _arguments \\")
        for action in _flags(parser):
            text = _help(action).replace("[", "(").replace("]", ")").replace(":", ";")
            value = ""
            if action.nargs != 0:
                filled = f"({' '.join(map(str, action.choices))})" if action.choices else "_files"
                value = f":value:{filled}"
            lines.append(f"        {_quoted(f'*{_long(action)}[{text}]{value}')} \\")
        rest = "(bash zsh fish)" if name == "completion" else "_files"
        lines.append(f"        '*:file:{rest}' ;;")
    return [*lines, "    esac", "}", '_fle "$@"']


def _fish(parsers: Parsers) -> list[str]:
    lines = []
    for name, parser in parsers.items():
        summary = _quoted(_summary(parser))
        lines.append(f"complete -c fle -n __fish_use_subcommand -f -a {name} -d {summary}")
    for name, parser in parsers.items():
        here = f"complete -c fle -n '__fish_seen_subcommand_from {name}'"
        for action in _flags(parser):
            flag = _long(action).removeprefix("--")
            line = f"{here} -l {flag} -d {_quoted(_help(action))}"
            if action.choices:
                line += f" -x -a {_quoted(' '.join(map(str, action.choices)))}"
            elif action.nargs != 0:
                line += " -r"
            lines.append(line)
    lines.append(
        "complete -c fle -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'"
    )
    return lines


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%").partition(";")[0]


def _summary(parser: argparse.ArgumentParser) -> str:
    return (parser.description or parser.prog).rstrip(".")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def gate(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Decide by confidence bounds; the exit code is the answer."""
    if options.junit is not None:
        require_ours(Path(options.junit), JUNIT)
    data = read_data_to_fit(options, [options.policy])
    from fle.fitting.comparison import checked_weights
    from fle.returns.measures import BEHAVIOUR
    from fle.trust.gate import Gate, bounds

    if options.weights is not None:
        checked_weights(options.weights, data)
    options.interval = bounds(options.level, options.replicates).level
    found = Gate.of(
        lambda name: planned(name, data, options),
        options.policy,
        BEHAVIOUR,
        options.require,
        options.level,
        options.weights,
    )
    if options.junit is not None:
        write_atomically(Path(options.junit), found.as_junit())
    rows = [[one.answer, str(one.requirement), one.why] for one in found.decisions]
    lines = [
        *labelled([("data", data_words(options.data, data)), ("policy", options.policy)]),
        "",
        *aligned([["answer", "required", f"estimate and bound at {options.level:g}"], *rows]),
        "",
        f"gate: {found.answer}",
    ]
    if found.evaluation is not None:
        lines.insert(0, f"verdict: {one_line(found.evaluation.verdict.in_words())}")
    document = {"policy": options.policy, **found.as_plain(), "junit": options.junit}
    return Outcome(tuple(lines), document, CODES[found.answer], one_line=True)
