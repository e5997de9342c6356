"""The pages do what they say: their code runs, their commands parse, their names and links exist.

The code of a page runs block after block in one namespace, which knows `fle` and `np`, in a folder
that holds what the page mentions (`doc_scenes.py`). A block under `<!-- not run: reason -->`, or
one that imports a package in NOT_INSTALLED, is only checked for its syntax and its names of fle.
"""

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import tomllib
import warnings

import numpy as np
import pytest
from doc_pages import ROOT, pages, take_apart
from doc_scenes import CHECKS, SCENES, SHOWN, WRITTEN, shorten

import fle
from fle.cli.entry import build_parser, parse, subparsers_of

# Decisions and the changelog speak of what was true at their time.
GUIDES = pages("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/results/README.md")
EVERYTHING = pages("*.md", "docs/**/*.md")
DECISIONS = pages("docs/decisions/0*.md")
LANGUAGES = {"", "console", "python", "toml"}
# Packages that pages may import though our tests do without them.
NOT_INSTALLED = {"torch", "stable_baselines3", "d3rlpy"}
NOTHING = (lambda folder: {},)
RUNS = [
    (name, scene)
    for name, page in GUIDES.items()
    if page.python()
    for scene in SCENES.get(name, NOTHING)
]
# Pages whose code speaks of second opinions, and the first one, are run with them.
ASKED = {name for name, page in GUIDES.items() if any("opinion" in b.code for b in page.python())}
ASKED.add("README.md")


def absent(block):
    """The packages of a block that may be missing, and are."""
    wanted = NOT_INSTALLED & set(block.packages())
    return sorted(name for name in wanted if importlib.util.find_spec(name) is None)


@pytest.mark.parametrize(
    ("name", "scene"),
    [
        pytest.param(*run, id=run[0], marks=[pytest.mark.second_opinions] * (run[0] in ASKED))
        for run in RUNS
    ],
)
def test_code_runs(name, scene, tmp_path, monkeypatch):
    shorten(monkeypatch)
    monkeypatch.chdir(tmp_path)
    shown = []
    with warnings.catch_warnings():
        # Data this small is warned of, and rightly.
        warnings.simplefilter("ignore", fle.FLEWarning)
        names = {"fle": fle, "np": np, "__name__": "page", **scene(tmp_path)}
        for block in GUIDES[name].python():
            if block.not_run or absent(block):
                shown.append(f"{block}: {block.not_run or ', '.join(absent(block))}")
                continue
            exec(block.compiled(), names)  # noqa: S102
            CHECKS.get((name, block.heading), lambda names: None)(names)
    if len(shown) == len(GUIDES[name].python()):
        pytest.skip(f"nothing to run: {'; '.join(shown)}")
    missing = [path for path in WRITTEN.get(name, ()) if not (tmp_path / path).exists()]
    assert not missing


def test_tables_name_what_is_there():
    assert set(SCENES) | set(WRITTEN) | set(SHOWN) <= {name for name, _ in RUNS}
    headings = {(name, block.heading) for name, page in GUIDES.items() for block in page.python()}
    assert set(CHECKS) <= headings
    assert "docs/baselines.md" in ASKED


@pytest.mark.parametrize("name", GUIDES)
def test_every_block_says_what_it_is(name):
    for block in GUIDES[name].blocks:
        assert block.language in LANGUAGES, f"{block}: ```{block.language}"


@pytest.mark.parametrize(("name", "file"), SHOWN.items())
def test_shown_code_is_that_of_the_file(name, file):
    first = GUIDES[name].python()[0]
    assert first.code.strip() in (ROOT / file).read_text(encoding="utf-8")


def public_names():
    """Everything that fle or one of its packages exports, by its name."""
    found = {}
    for module in pkgutil.walk_packages(fle.__path__, "fle."):
        if module.ispkg:
            package = importlib.import_module(module.name)
            found |= {name: getattr(package, name) for name in getattr(package, "__all__", ())}
    return {**found, **{name: getattr(fle, name) for name in fle.__all__}, "fle": fle}


PUBLIC = public_names()


def dotted(node):
    """a.b.c as a list of names; None for any other expression."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else None


def looked_up(names):
    """What a dotted name stands for; None where it is not one of ours."""
    value = PUBLIC.get(names[0])
    for position, name in enumerate(names[1:], start=1):
        if value is None:
            return None
        if inspect.ismodule(value) and not hasattr(value, name):
            importlib.import_module(".".join(["fle", *names[1 : position + 1]]))
        value = getattr(value, name)
    return value


def wrong_names(tree):
    """The names of fle in the code that do not exist, and arguments that nothing takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fle":
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    yield f"{node.module} has no {alias.name}"
        names = dotted(node)
        if names and names[0] == "fle":
            try:
                looked_up(names)
            except (AttributeError, ModuleNotFoundError):
                yield f"{'.'.join(names)} does not exist"
        if isinstance(node, ast.Call) and (called := dotted(node.func)):
            yield from wrong_arguments(node, called)


def wrong_arguments(call, names):
    try:
        function = looked_up(names)
    except (AttributeError, ModuleNotFoundError):
        yield f"{'.'.join(names)} does not exist"
        return
    if function is None or not callable(function):
        return
    known = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in known:
            yield f"{'.'.join(names)} has no argument {keyword.arg}"


def parsed_spans(page):
    """The code in the text that is Python."""
    for span in page.spans():
        try:
            yield ast.parse(span)
        except SyntaxError:
            continue


@pytest.mark.parametrize("name", GUIDES)
def test_names_exist(name):
    page = GUIDES[name]
    trees = [*(block.tree() for block in page.python()), *parsed_spans(page)]
    assert [wrong for tree in trees for wrong in wrong_names(tree)] == []


EXCEPTIONS = {"FLEError", "FLEWarning"}
CALLED = [n for n in fle.__all__ if callable(getattr(fle, n)) and n not in EXCEPTIONS]


def examples(text):
    """The code of a docstring: what follows `Example:` in backticks, and doctests."""
    _, _, after = text.partition("Example:")
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", after)]
    return [*spans, *(example.source for example in doctest.DocTestParser().get_examples(text))]


@pytest.mark.parametrize("name", CALLED)
def test_what_users_call_has_an_example(name):
    """It parses, and names only what there is."""
    found = examples(inspect.getdoc(getattr(fle, name)))
    assert found
    assert [wrong for code in found for wrong in wrong_names(ast.parse(code))] == []


FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("src", "tests", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
]
# Named as what there should not be.
UNWANTED = {"utils.py"}


@pytest.mark.parametrize("name", GUIDES)
def test_files_of_ours_exist(name):
    mentioned = {span for span in GUIDES[name].spans() if re.fullmatch(r"[\w/]+\.py", span)}
    there = {file for file in mentioned if any(f"/{path}".endswith(f"/{file}") for path in FILES)}
    assert mentioned - there - UNWANTED == set()


def words_of_ours():
    """Every word of the package, and the names of all files."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    return set(re.findall(r"\w+", " ".join([*texts, *FILES])))


OURS = words_of_ours()
# Names in the text that are not ours.
FOREIGN = {
    "docs/adapters.md": {"ReplayBuffer", "is_last"},
    "docs/command_line.md": {"JAX_COMPILATION_CACHE_DIR"},
    "docs/policies.md": {
        *("actor_mean", "actor_logstd", "actor_encoder", "get_weights", "get_state"),
        "save_policy",
    },
    "docs/runs.md": {"MySpec"},
}


@pytest.mark.parametrize("name", GUIDES)
def test_words_are_ours(name):
    """A name in the text that is nowhere in the package was renamed, or never there."""
    spans = [span for span in GUIDES[name].spans() if re.fullmatch(r"[\w.]+(\(.*\))?", span)]
    mentioned = set(re.findall(r"[A-Za-z_]\w+", " ".join(spans)))
    coded = {word for word in mentioned if "_" in word or re.search("[a-z][A-Z]", word)}
    assert coded - OURS - FOREIGN.get(name, set()) == set()


@pytest.mark.parametrize("name", EVERYTHING)
def test_links_lead_somewhere(name):
    folder = (ROOT / name).parent
    assert [link for link in EVERYTHING[name].links() if not (folder / link).exists()] == []


COMMANDS = [(name, words) for name, page in GUIDES.items() for words in page.commands()]


@pytest.mark.parametrize(
    ("name", "words"), COMMANDS, ids=[f"{name}: {' '.join(words)}" for name, words in COMMANDS]
)
def test_commands_parse(name, words):
    if len(words) == 1:
        assert words[0] in subparsers_of(build_parser(words))
    else:
        assert parse(words).command == words[0]


def test_options_and_configuration_exist():
    """Options that stand alone in the text belong to a command, and those of a file to evaluate."""
    known = subparsers_of(build_parser(["completion"]))
    flags = {flag for command in known.values() for flag in command._option_string_actions}
    for name, page in GUIDES.items():
        for span in page.spans():
            if span.startswith("--"):
                unknown = set(re.findall(r"(?<!\S)--[\w-]+", span)) - flags
                assert not unknown, f"{name}: {span}"
    evaluate = {action.dest for action in known["evaluate"]._actions}
    files = [block for page in GUIDES.values() for block in page.blocks if block.language == "toml"]
    for block in files:
        unknown = {key.replace("-", "_") for key in tomllib.loads(block.code)} - evaluate
        assert not unknown, str(block)


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_one_screen(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.findall(r"^\*\*(\w+)", text, flags=re.MULTILINE) == [
        "Context",
        "Choice",
        "Figures",
        "Consequences",
    ]
    lines = text.splitlines()
    assert len(lines) <= 45
    assert all(len(line) <= 100 for line in lines if not line.startswith("|"))


def test_every_decision_is_in_the_table():
    listed = EVERYTHING["docs/decisions/README.md"].links()
    assert {name.rpartition("/")[2] for name in DECISIONS} <= set(listed)


PAGE = """\
# Title
Say `fle check` or `fle COMMAND`; see [there](b.md#part) and [far](https://a.b/c.md).
```python
x = 1
```
<!-- not run: needs a robot -->

```python
import torch.nn
```
```console
$ fle demo --out \\
  here  # a folder
```
"""


def test_a_page_is_taken_apart():
    page = take_apart("a.md", PAGE)
    first, second = page.python()
    assert (first.code, first.line, first.heading, first.not_run) == ("x = 1\n", 4, "Title", None)
    assert (second.not_run, list(second.packages())) == ("needs a robot", ["torch"])
    assert list(page.commands()) == [["check"], ["demo", "--out", "here"]]
    assert page.links() == ["b.md"]


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("fle.evaluate(data, policy, gamma=0.9)", []),
        ("fle.evaluate(data, policy, gama=0.9)", ["fle.evaluate has no argument gama"]),
        ("fle.reed('a')", ["fle.reed does not exist", "fle.reed does not exist"]),
        ("from fle.policies import Behavior", ["fle.policies has no Behavior"]),
        ("Dataset.from_episodes(episodes)", []),
        ("GMM(parts=3)", ["GMM has no argument parts"]),
        ("mine(parts=3)", []),
    ],
)
def test_wrong_names_are_found(code, wrong):
    assert list(wrong_names(ast.parse(code))) == wrong
