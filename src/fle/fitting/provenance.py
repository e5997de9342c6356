"""What a run was made of: its settings, and what is kept of the data it was fitted to."""

import dataclasses
import hashlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Self

import jax
import numpy as np

from fle.data import Dataset
from fle.errors import FLEError
from fle.files import plain_json

FORMAT = 1
PACKAGES = ("fle", "jax", "jaxlib", "numpy", "equinox", "optax", "safetensors")
# What must be the same for a run to go on.
IDENTITY = ("data", "policy", "seed", "settings")


@dataclass(frozen=True)
class Provenance:
    """Everything that decides the result of a run, as plain values.

    data, policy: fingerprints of the logged data and of the policy's answers to it.
    settings: the problem, the model and its recipe, with all defaults filled in.
    versions: of the packages, and the machine.
    """

    data: str
    policy: str
    seed: int
    settings: dict[str, Any]
    versions: dict[str, str]

    def as_plain(self) -> dict[str, Any]:
        """The content of `run.json`."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any], source: str) -> Self:
        """From the content of `run.json`."""
        if plain.get("format") != FORMAT:
            raise FLEError(
                f"{source}: expected format {FORMAT}, found {plain.get('format')!r}. Use the "
                "version of fle that wrote it."
            )
        names = [field.name for field in dataclasses.fields(cls)]
        missing = [name for name in names if name not in plain]
        if missing:
            raise FLEError(f"{source} is damaged: it lacks {', '.join(missing)}.")
        return cls(**{name: plain[name] for name in names})

    @property
    def identity(self) -> str:
        """A hash of all that must be the same for a run to go on."""
        plain = {name: getattr(self, name) for name in IDENTITY}
        return hashlib.sha256(plain_json(plain).encode()).hexdigest()

    def differences(self, other: "Provenance") -> list[str]:
        """What is not the same in another run, in words: first here, then there."""
        lines = []
        for name in IDENTITY:
            pairs = dict(_flat(name, getattr(self, name)))
            others = dict(_flat(name, getattr(other, name)))
            for key in sorted(pairs.keys() | others.keys()):
                here, there = pairs.get(key), others.get(key)
                if here != there:
                    lines.append(f"{key.removeprefix('settings.')} ({_short(here, there)})")
        return lines


def current_versions() -> dict[str, str]:
    """Versions of the packages a result depends on, and the machine."""
    return {
        **{name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()} {jax.default_backend()}",
    }


@dataclass(frozen=True, eq=False)
class LoggedData:
    """What an evaluation keeps of its data.

    summary: the data in words, with its notes and warnings.
    returns: (episodes, d), what the behaviour policy earned in each logged episode, discounted and
        cut as the evaluated returns are; None where whole episodes are not known.
    complete: (episodes,), whether an episode's return is whole: it ended, or reached the horizon.
        The others lack what came after they were cut off.
    """

    rows: int
    episodes: int | None
    summary: str
    returns: np.ndarray | None
    complete: np.ndarray | None

    @classmethod
    def of(cls, data: Dataset, gamma: float, horizon: int | None) -> Self:
        """What is kept of these data."""
        returns, complete = None, None
        if data.episodes is not None and data.whole_episodes:
            returns, complete = data.observed_returns(gamma, horizon)
        return cls(len(data), data.number_of_episodes, data.summary(), returns, complete)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}", item)
    else:
        yield name, value


def _short(here: Any, there: Any) -> str:
    if isinstance(here, str) and len(here) == hashlib.sha256().digest_size * 2:
        here, there = here[:12], str(there)[:12]
    return f"{here} in the run, {there} now"
