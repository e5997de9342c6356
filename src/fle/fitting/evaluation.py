"""The result of an evaluation: distributions of the return, and how they were reached."""

import dataclasses
import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
import numpy.typing as npt

from fle.data import Dataset
from fle.data.passes import row_blocks
from fle.data.readers.coding import label_codes
from fle.data.readers.reading import unnamed
from fle.errors import CoverageError, DataError, FLEError, SettingsError
from fle.files import plain_json
from fle.fitting.encoding import Encoder, Fitted
from fle.fitting.measurement import BellmanErrors, StageRecord, Visits
from fle.fitting.problem import Problem, sum_of_discounts
from fle.fitting.replicates import Refits
from fle.fitting.targets import MixtureOverInputs
from fle.manifests import Key, require_form
from fle.models.specs import ModelSpec
from fle.policies.answers import Coverage
from fle.recipe import FIRST_LOOK, Resolved
from fle.returns import ReturnDistribution
from fle.returns.distances import Calibration
from fle.returns.intervals import Estimate, Intervals, Replicates
from fle.returns.measures import Measure
from fle.returns.opinions import SecondOpinions
from fle.screen import Tabular, html_lines, labelled

if TYPE_CHECKING:
    from fle.trust.verdict import Verdict

# Share of the discounted steps that logged episodes may lack and still be set beside an estimate.
MOST_MISSING = 0.02
WITHHELD = "numbers are withheld; result.anyway() gives them all the same"
FORMAT = 1
PACKAGES = ("fle", "jax", "jaxlib", "numpy", "equinox", "safetensors")
# What must be the same for a run to go on.
# What settings say of the run that this one went on from.
GONE_ON_FROM = {"run": str, "steps": int}
IDENTITY = ("data", "policy", "seed", "settings")


@dataclass(frozen=True)
class Evaluation(Tabular):
    """What `fle.evaluate` found.

    problem: which return was estimated; `gamma` and `horizon` are its own.
    model, recipe: what was fitted, and how, with every setting chosen.
    records: one a stage, in the order of fitting.
    notes, warnings: what was decided for the user, and what they should know.
    logged: what is kept of the data, with the returns the behaviour policy was seen to earn.
    coverage: how well the data shows what the policy does; None for the one that logged it.
    provenance: all settings, the seed, the versions, and fingerprints of data and policy.
    refits: fits to resampled episodes, where intervals were asked for.
    second_opinions: what other estimators say of the same return; None where they were left out.
    visits: how well the log covers where the policy goes; None for the one that logged it.
    bellman: how far the fits are from their own targets; None where there are too few rows.
    calibration: predictions of held-out episodes of the logging policy, where it was asked for.
    released: whether numbers are given whatever the verdict is.

    Example: `result.returns.cvar(0.1)`, `print(result.verdict)`, `result.report("report.html")`.
    """

    problem: Problem
    model: ModelSpec
    recipe: Resolved
    records: tuple[StageRecord, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    return_names: tuple[str, ...]
    encoder: Encoder
    fits: tuple[Fitted, ...]
    initial_inputs: np.ndarray
    initial_weights: np.ndarray
    logged: "LoggedData"
    coverage: Coverage | None
    provenance: "Provenance"
    refits: Refits | None = None
    second_opinions: SecondOpinions | None = None
    visits: Visits | None = None
    bellman: BellmanErrors | None = None
    calibration: Calibration | None = None
    released: bool = False

    @cached_property
    def verdict(self) -> "Verdict":
        """Whether the estimate may be used: "trust", "caution" or "do not use", and why.

        Example: `print(result.verdict)`.
        """
        from fle.trust.verdict import verdict_of

        return verdict_of(self)

    @property
    def withheld(self) -> str | None:
        """Why no number is given; None where they are, or were asked for all the same."""
        if self.released or self.verdict.level != "do not use":
            return None
        return self.verdict.in_words()

    def anyway(self) -> Self:
        """The same, with numbers whatever the verdict is."""
        # What gives them already has drawn them, perhaps.
        return dataclasses.replace(self, released=True) if self.withheld is not None else self

    def _require_released(self) -> None:
        if self.withheld is not None:
            raise CoverageError(
                f"No estimate: {self.withheld}. See result.verdict for what would change it, and "
                "the numbers all the same with anyway=True, or result.anyway()."
            )

    @property
    def gamma(self) -> float:
        """The discount factor."""
        return self.problem.gamma

    @property
    def quick(self) -> bool:
        """Whether this is a first look, which decides nothing."""
        return bool(self.provenance.settings.get("quick", False))

    @property
    def horizon(self) -> int | None:
        """The number of steps; None for a discounted problem."""
        return self.problem.horizon

    @cached_property
    def returns(self) -> ReturnDistribution:
        """The distribution of the return from the initial states under the target policy.

        Raises `CoverageError` where the verdict is "do not use"; see `anyway`.
        """
        self._require_released()
        refits, fits = self.refits, self.fits
        law = self._distribution(fits[-1], self.initial_inputs, self.initial_weights)
        if refits is None:
            return law

        def replicates() -> list[ReturnDistribution]:
            return [
                self._distribution(
                    fits[-1],
                    self.initial_inputs,
                    refits.start_weights(place, self.initial_weights),
                )
                for place, fits in enumerate(refits.fits)
            ]

        return dataclasses.replace(law, replicates=Replicates(replicates, refits.level))

    @cached_property
    def intervals(self) -> Intervals | None:
        """The intervals of the usual measures, which print as a table; None without any."""
        if self.refits is None or self.withheld is not None:
            return None
        refits = self.refits
        return Intervals(self.returns, refits.level, len(refits.fits), refits.resampled)

    def interval(
        self, asked: str | Measure, level: float | None = None, *, coordinate: int | str = 0
    ) -> Estimate:
        """A measure of the return from the initial states, with its interval.

        level: another one than the evaluation was made with. coordinate: which of several returns.

        Example: `evaluation.interval("cvar:0.1").ends`.
        """
        return self.returns.marginal(coordinate).interval(asked, level)

    def at(self, observation: npt.ArrayLike, action: npt.ArrayLike, *, step: int = 0) -> Any:
        """The `ReturnDistribution` that follows one observation and action.

        A batch, of observations (n, p), of discrete states (n,), of actions, or a frame, gives a
        tuple of n distributions, one a row; what is not a batch holds for all rows. With a finite
        horizon, `step` (counting from 0) says when they occur. A frame or a mapping must have the
        columns of the data, by name and in order; categories may be given as they were logged,
        and actions by their labels.

        Example: `[law.mean() for law in result.at(x, ["A", "B", "none"])]`.
        """
        sizes = self.encoder.sizes
        several = _is_batch(observation, sizes.discrete_observations)
        several = several or _is_batch(action, sizes.discrete_actions)
        observations, actions = self._batch(observation, action)
        inputs = self.encoder.inputs(observations, actions)
        laws = tuple(self._at(inputs[place : place + 1], step) for place in range(len(inputs)))
        return laws if several else laws[0]

    def mixture(
        self, observations: npt.ArrayLike, actions: npt.ArrayLike, *, step: int = 0
    ) -> ReturnDistribution:
        """The equal mixture of the distributions that `at` gives for a batch."""
        return self._at(self.encoder.inputs(*self._batch(observations, actions)), step)

    def _at(self, inputs: np.ndarray, step: int) -> ReturnDistribution:
        self._require_released()
        weights = np.full(len(inputs), 1 / len(inputs))
        law = self._distribution(self._fit_of(step), inputs, weights, step)
        if self.refits is None:
            return law
        others = [dataclasses.replace(self, fits=fits) for fits in self.refits.fits]
        replicates = Replicates(
            lambda: [o._distribution(o._fit_of(step), inputs, weights, step) for o in others],
            self.refits.level,
        )
        return dataclasses.replace(law, replicates=replicates)

    def save(self, directory: str | os.PathLike[str], *, key: Key | None = None) -> None:
        """Write all of it to a run directory, from which `fle.load` gives it back.

        key: signs it, by HMAC-SHA256: bytes, or the path of a file with them.
        """
        from fle.fitting.runs import save

        save(self, directory, key)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        truth: npt.ArrayLike | ReturnDistribution | None = None,
        title: str | None = None,
    ) -> None:
        """Write one HTML file with all of it, which needs no network; see `fle.report`."""
        from fle.report import write_report

        write_report(self, path, truth=truth, title=title)

    def _fit_of(self, step: int) -> Fitted:
        if self.horizon is None:
            if step != 0:
                raise SettingsError(
                    f"step={step} was given, but a discounted problem is the same at every step."
                )
            return self.fits[-1]
        if not 0 <= step < self.horizon:
            raise SettingsError(
                f"step: expected from 0 to {self.horizon - 1} (the horizon is {self.horizon}), "
                f"got {step}."
            )
        return self.fits[self.horizon - 1 - step]

    def _batch(
        self, observation: npt.ArrayLike, action: npt.ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Both with a leading axis, checked against the sizes of the data."""
        sizes = self.encoder.sizes
        logged = self.logged
        observation = unnamed("observation", observation, logged.observation_names)
        action = label_codes(unnamed("action", action, logged.action_names), logged.action_labels)
        observations = _rows_of(
            "observation", observation, sizes.observation, sizes.discrete_observations
        )
        actions = _rows_of("action", action, sizes.action, sizes.discrete_actions)
        if len(actions) == 1:
            actions = np.repeat(actions, len(observations), axis=0)
        if len(observations) == 1:
            observations = np.repeat(observations, len(actions), axis=0)
        if len(observations) != len(actions):
            raise DataError(
                f"Got {len(observations)} observations and {len(actions)} actions; give one action "
                "for all of them, or one each."
            )
        return observations, actions

    def _distribution(
        self, fitted: Fitted, inputs: np.ndarray, weights: np.ndarray, step: int = 0
    ) -> ReturnDistribution:
        left = None if self.horizon is None else self.horizon - step
        offset = self.encoder.reward_centre * sum_of_discounts(self.gamma, left)
        # What has a fixed shape is left as it is: its mean would be moved.
        lattice = self.encoder.lattice(self.gamma, left) if self.model.any_shape else None
        unit = self.encoder.reward_unit
        mixed = MixtureOverInputs(fitted, inputs, weights, unit, offset, lattice)
        density = mixed.log_density if fitted.law.has_density else None
        return ReturnDistribution(mixed.draw, density, self.return_names)

    def columns(self) -> dict[str, list[Any]]:
        """The usual measures of each return, one a row, with intervals where there are any."""
        return self.returns.columns()

    def plot(self, kind: str = "density") -> Any:
        """An Altair chart: "density", "cdf", "quantile", "joint", "stages" of the fit, or
        "calibration", where it was asked for.

        What was logged is the grey line. Example: `result.plot("stages")`.
        """
        from fle.report.plots import plot_evaluation

        return plot_evaluation(self, kind)

    def _repr_html_(self) -> str:
        lines: list[tuple[str, str]] = [("verdict", self.verdict.level)]
        lines += [("why", reason.words) for reason in self.verdict.reasons]
        lines += [("would change it", change) for change in self.verdict.changes]
        lines += [("problem", self.problem.in_words()), ("model", repr(self.model))]
        if self.coverage is not None:
            lines.append(("coverage", self.coverage.in_words()))
        if self.withheld is not None:
            return html_lines("Evaluation", lines)
        if self.intervals is not None:
            lines.append(("intervals", self.intervals.in_words()))
        lines += [("note", note) for note in self.notes]
        lines += [("warning", warning) for warning in self.warnings]
        title = "Evaluation, a first look" if self.quick else "Evaluation"
        return html_lines(title, lines) + self.returns._repr_html_()

    def __str__(self) -> str:
        lines = [*self.verdict.for_terminal(), ""]
        facts = [("problem", f"{self.problem.in_words()}; model {self.model.name}")]
        if self.quick:
            facts.append(("quick", FIRST_LOOK))
        if self.intervals is not None:
            facts.append(("intervals", self.intervals.in_words()))
        lines += [*labelled(facts), ""]
        if self.withheld is not None:
            return "\n".join([*lines, WITHHELD])
        return "\n".join([*lines, str(self.returns)])

    def __repr__(self) -> str:
        problem = f"gamma={self.gamma:g}"
        if self.horizon is not None:
            problem += f", horizon={self.horizon}"
        if self.quick:
            problem += ", quick=True"
        return (
            f"Evaluation({problem}, model={self.model!r}, stages={len(self.fits)}, "
            f"verdict={self.verdict.level!r})"
        )


def _is_batch(value: Any, discrete: bool) -> bool:
    """Whether there is a leading axis, of which there may be one row."""
    if isinstance(value, Mapping):
        return any(np.ndim(entry) > 0 for entry in value.values())
    return np.ndim(value) >= (1 if discrete else 2)


def _rows_of(name: str, value: npt.ArrayLike, size: int, discrete: bool) -> np.ndarray:
    array = np.asarray(value)
    if discrete:
        array = np.atleast_1d(array)
        whole = array.ndim == 1 and np.issubdtype(array.dtype, np.integer)
        if not whole or array.min() < 0 or array.max() >= size:
            raise DataError(f"{name}: expected whole numbers from 0 to {size - 1}, got {value!r}.")
        return array
    array = np.atleast_2d(np.asarray(array, np.float64))
    if array.shape[-1] != size and array.size == size:
        array = array.reshape(1, size)
    if array.ndim != 2 or array.shape[1] != size:
        raise DataError(
            f"{name}: expected {size} columns like the data, got shape {np.shape(value)}."
        )
    if not np.all(np.isfinite(array)):
        raise DataError(f"{name}: expected finite numbers, got {value!r}.")
    return array


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
        require_format(plain, source)
        values = {name: value for name, value in plain.items() if name != "format"}
        require_form(values, cls, source)
        if "from" in values["settings"]:
            require_form(values["settings"]["from"], GONE_ON_FROM, f"{source}: from")
        if values["seed"] < 0:
            raise FLEError(f"{source} is damaged: seed: expected at least 0, got {values['seed']}.")
        return cls(**values)

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


def require_format(plain: dict[str, Any], source: str) -> None:
    """Refuse a file of another version, whose fields may mean something else."""
    if plain.get("format") != FORMAT:
        raise FLEError(
            f"{source}: expected format {FORMAT}, found {str(plain.get('format'))[:20]}. Use the "
            "version of fle that wrote it."
        )


@cache
def _installed() -> dict[str, str]:
    """Versions of the packages; they are looked up in files."""
    return {name: version(name) for name in PACKAGES}


def current_versions() -> dict[str, str]:
    """Versions of the packages a result depends on, and the machine."""
    return {
        **_installed(),
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
    missing: share of the discounted steps that they lack, on average over all episodes.
    content: a hash of the rows, for a log that grows (`rows_hash`); "" where it is not known.
    observation_names, action_names: of the columns, where the data has any.
    action_labels: what the action codes are called, where the data says so.
    """

    rows: int
    episodes: int | None
    summary: str
    returns: np.ndarray | None
    complete: np.ndarray | None
    observation_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    action_labels: tuple[str, ...] = ()
    missing: float = 0.0
    content: str = ""

    @property
    def comparable(self) -> np.ndarray | None:
        """The returns, where they are as long as the evaluated ones; else None."""
        return None if self.missing > MOST_MISSING else self.returns

    @property
    def remark(self) -> str | None:
        """What should be known about the logged returns, if anything."""
        if self.returns is None or self.complete is None:
            return "whole logged episodes are not known, so there are no observed returns to show"
        cut = int(np.sum(~self.complete))
        if cut == 0:
            return None
        words = f"{cut:,} of {len(self.returns):,} logged episodes were cut off before they ended"
        if self.comparable is None:
            return (
                f"{words} and lack {self.missing:.0%} of the discounted steps: what they earned"
                " cannot be set beside the estimate, and is not shown"
            )
        return f"{words}: their observed returns lack what would have come after the cut"

    @classmethod
    def of(cls, data: Dataset, gamma: float, horizon: int | None) -> Self:
        """What is kept of these data."""
        returns, complete, missing = None, None, 0.0
        if data.episodes is not None and data.whole_episodes:
            returns, complete = data.observed_returns(gamma, horizon)
            # Episodes of a subset are not numbered without gaps.
            lengths = np.unique(data.episodes, return_counts=True)[1][~complete]
            whole = sum_of_discounts(gamma, horizon)
            lacking = [sum_of_discounts(gamma, int(n)) / whole for n in np.unique(lengths)]
            places = np.unique(lengths, return_inverse=True)[1]
            missing = float(np.sum(1 - np.array(lacking)[places])) / len(returns)
        return cls(
            len(data),
            data.number_of_episodes,
            data.summary(),
            returns,
            complete,
            data.observation_names,
            data.action_names,
            data.action_labels,
            missing,
            rows_hash(data, len(data)),
        )


def rows_hash(data: Dataset, number: int) -> str:
    """SHA-256 of what the first rows show, however many follow and whatever they are called."""
    digest = hashlib.sha256()
    for values in (data.observations, data.actions, data.rewards, data.terminations):
        kind = values.dtype.newbyteorder("<")
        digest.update(f"{kind.str}{values.shape[1:]};".encode())
        for block in row_blocks(number):
            digest.update(np.ascontiguousarray(values[block], dtype=kind).data)
    return digest.hexdigest()


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
