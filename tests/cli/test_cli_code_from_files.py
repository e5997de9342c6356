"""No configuration file makes a command run code; only a typed word does."""

import importlib
import sys

import pytest
from cli_runs import QUICK, log, run, write

from fle.cli import UsageError
from fle.cli.commands import CHECK, COMMANDS, COMPARE, CONFIG, GATE, REPORT
from fle.cli.entry import as_toml, as_words, parse, read_config, resolve

CONFIGURED = [command for command in COMMANDS if CONFIG in command.options]
ASKING = [command for command in CONFIGURED if any(o.name == "policy" for o in command.options)]
SWITCHES = sorted({o.name for c in CONFIGURED for o in c.options if o.form == "switch"})


def command_name(command):
    return command.name


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module in the current folder that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(
        "import pathlib\nimport numpy as np\npathlib.Path('mark').touch()\n"
        "def f(observations):\n    return np.full((len(observations), 2), 0.5)\n"
    )
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    write(tmp_path, log())
    yield tmp_path / "mark"
    sys.modules.pop("evil", None)


@pytest.mark.parametrize("command", ASKING, ids=command_name)
@pytest.mark.parametrize("switch", [*SWITCHES, "allow-code", None])
def test_a_file_cannot_run_code(capsys, trap, command, switch):
    """Whichever switch it sets."""
    policy = '["evil:f", "behaviour"]' if command is COMPARE else '"evil:f"'
    config = f'data = "log.parquet"\npolicy = {policy}\n'
    if command is not CHECK:
        config += "horizon = 4\n"
    if command is GATE:
        config += 'require = ["mean >= 0"]\n'
    if switch is not None:
        config += f"{switch} = true\n"
    trap.with_name("run.toml").write_text(config)
    answer = run(capsys, command.name, "--config", "run.toml")
    assert answer.code == 2
    assert not trap.exists()
    if switch is None or switch.startswith("allow"):
        assert "--allow-code" in answer.err


@pytest.mark.parametrize("command", CONFIGURED, ids=command_name)
@pytest.mark.parametrize("value", ["true", "false", "1", "'yes'"])
@pytest.mark.parametrize("key", ["allow_code", "allow-code"])
def test_no_command_reads_it_from_a_file(tmp_path, command, key, value):
    path = tmp_path / "run.toml"
    path.write_text(f"{key} = {value}\n")
    with pytest.raises(UsageError, match=r"allow.code"):
        read_config(path, command)


def test_what_enables_code_is_marked():
    """A new option that lets code run has to be marked too; this finds it by its help."""
    for command in COMMANDS:
        for option in command.options:
            if "run Python" in option.help:
                assert option.typed == "whether code may run"
        marked = {option.name for option in command.options if option.typed}
        assert (command in ASKING) == ("allow_code" in marked)


@pytest.mark.parametrize(
    ("key", "value"), [("cluster", "ray://elsewhere:10001"), ("slurm", ".bashrc")]
)
def test_a_file_sends_nothing_elsewhere(capsys, trap, key, value):
    """A cluster is sent the log and its answers are unpickled; a script is written over a file.

    Neither a configuration nor the settings of the run that one goes on from may say it.
    """
    other = trap.with_name(".bashrc")
    other.write_text("mine")
    trap.with_name("run.toml").write_text(
        f'data = "log.parquet"\npolicy = "behaviour"\nhorizon = 4\nout = "out"\n{key} = "{value}"\n'
    )
    answer = run(capsys, "evaluate", "--config", "run.toml")
    assert (answer.code, other.read_text()) == (2, "mine")
    assert f"type --{key} on the command line" in answer.err
    (trap.with_name("earlier")).mkdir()
    trap.with_name("run.toml").rename(trap.with_name("earlier") / "run.toml")
    answer = run(capsys, "evaluate", "--from", "earlier", "--out", "again")
    assert (answer.code, other.read_text()) == (2, "mine")
    assert f"type --{key} on the command line" in answer.err


@pytest.mark.parametrize("command", [GATE, REPORT], ids=command_name)
def test_a_file_that_is_not_ours_is_not_written_over(capsys, trap, command):
    """Where a page or a JUnit file goes may stand in a stranger's file."""
    other = trap.with_name("mine.txt")
    other.write_text("mine")
    settings = {
        GATE: 'data = "log.parquet"\npolicy = "behaviour"\nhorizon = 4\nrequire = ["mean >= 0"]\n'
        'junit = "mine.txt"\n',
        REPORT: 'run = "run"\nout = "mine.txt"\n',
    }[command]
    trap.with_name("run.toml").write_text(settings)
    answer = run(capsys, command.name, "--config", "run.toml")
    assert (answer.code, other.read_text()) == (2, "mine")
    assert "was not written by fle" in answer.err


def test_a_typed_word_runs_it_and_the_file_left_behind_does_not(capsys, trap):
    words = ("evaluate", "log.parquet", "--policy", "evil:f", "--horizon", "4", *QUICK)
    answer = run(capsys, *words, "--out", "run", "--allow-code")
    assert answer.code == 0, answer.err
    assert trap.exists()
    written = trap.with_name("run") / "run.toml"
    assert written.read_text().startswith("# fle evaluate --config run.toml --allow-code\n")
    trap.unlink()
    del sys.modules["evil"]
    again = run(capsys, "evaluate", "--config", written, "--out", "other")
    assert (again.code, trap.exists()) == (2, False)
    assert "--allow-code" in again.err
    assert run(capsys, "evaluate", "--config", written, "--out", "other", "--allow-code").code == 0
    assert trap.exists()


def test_the_spoken_command_says_it_and_the_file_does_not():
    given = parse(["check", "log.parquet", "--policy", "evil:f", "--allow-code"])
    options = resolve(CHECK, given)
    assert "--allow-code" in as_words(CHECK, options)
    lines = as_toml(CHECK, options).split("\n")
    assert not any(line.startswith("allow") for line in lines)
