"""The Markdown pages taken apart: fenced blocks, code spans, links, and the commands in them."""

import ast
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>\S.*?) -->")
FENCE = re.compile(r"^ *```(?P<language>\w*) *$")
SPAN = re.compile(r"`((?:(?!\n\n)[^`])+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Words that stand for what the reader puts there: COMMAND, bash|zsh.
PLACEHOLDER = re.compile(r"[A-Z]{2,}|\w+\|.*|\.\.\.")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    line: of the page, where the code begins.
    heading: the last one above it.
    not_run: why it is shown but not run; None if it is run.
    """

    page: str
    line: int
    heading: str
    language: str
    code: str
    not_run: str | None

    def __str__(self):
        return f"{self.page}:{self.line}"

    def tree(self):
        return ast.parse(self.code, str(self))

    def compiled(self):
        """Padded, so that a traceback names the line of the page."""
        return compile("\n" * (self.line - 1) + self.code, self.page, "exec")

    def packages(self):
        """The packages that the code imports."""
        for node in ast.walk(self.tree()):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0]


@dataclass(frozen=True)
class Page:
    """Its fenced blocks, and the text between them."""

    name: str
    blocks: tuple[Block, ...]
    prose: str

    def python(self):
        return [block for block in self.blocks if block.language == "python"]

    def spans(self):
        return [" ".join(span.split()) for span in SPAN.findall(self.prose)]

    def links(self):
        """Targets in this repository, without their anchors."""
        targets = (target.partition("#")[0] for target in LINK.findall(self.prose))
        return [target for target in targets if target and "://" not in target]

    def commands(self):
        """The words of every command line that begins with fle, in blocks and in the text."""
        lines = list(self.spans())
        for block in self.blocks:
            if block.language in ("", "console") and block.not_run is None:
                lines += block.code.replace("\\\n", " ").splitlines()
        for line in lines:
            line = line.strip().removeprefix("$ ")
            if line.startswith("fle "):
                words = shlex.split(line, comments=True)[1:]
                if not any(PLACEHOLDER.fullmatch(word) for word in words):
                    yield words


def take_apart(name, text):
    """The page of this name with this text."""
    blocks, prose = [], []
    heading, reason, opened = "", None, None
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None and fence is None:
            prose.append(line)
            if line.startswith("#"):
                heading = line.lstrip("# ")
            if line.strip():
                marker = NOT_RUN.fullmatch(line.strip())
                reason = marker["reason"] if marker else None
        elif opened is None:
            opened, code = (number + 1, fence["language"]), []
        elif line.strip() == "```":
            source = "\n".join(code) + "\n"
            blocks.append(Block(name, opened[0], heading, opened[1], source, reason))
            opened, reason = None, None
        else:
            code.append(line)
    if opened is not None:
        raise ValueError(f"{name}:{opened[0]}: a block that is not closed")
    return Page(name, tuple(blocks), "\n".join(prose))


def pages(*patterns):
    """The pages that match, by their paths."""
    paths = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return {name: take_apart(name, (ROOT / name).read_text(encoding="utf-8")) for name in names}
