"""Completion scripts know every command and option."""

import shutil
import subprocess

import pytest
from cli_runs import run

from fle.cli.commands import COMMANDS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_is_in_the_script(capsys, shell):
    script = run(capsys, "completion", shell).out
    for command in COMMANDS:
        assert command.name in script
        for option in command.options:
            flag = option.flag.removeprefix("--") if shell == "fish" else option.flag
            assert option.form == "files" or flag in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)  # noqa: S603


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("com", {"compare", "completion"}),
        ("evaluate --resume ''", {"latest", "previous"}),
        ("evaluate x.parquet --gam", {"--gamma"}),
        (
            "compare x --policy-",
            {"--policy-input", "--policy-output", "--policy-timeout", "--policy-memory"},
        ),
        ("completion f", {"fish"}),
        ("check log", set()),
    ],
)
def test_bash_completes(capsys, words, completed):
    script = run(capsys, "completion", "bash").out
    script += f"\nCOMP_WORDS=(fle {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _fle\n"
    script += 'echo "${COMPREPLY[@]}"\n'
    answer = subprocess.run(  # noqa: S603
        ["bash", "-c", script],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(answer.stdout.split()) == completed
