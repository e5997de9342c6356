"""Target policies that answer from observations: functions of several kinds, and arrays.

They are called in batches, within a time limit, and what they answer is checked.
"""

import inspect
import reprlib
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fle.data import Dataset
from fle.data.validation import require_same_names
from fle.errors import FLEError, PolicyError
from fle.policies.action_table import ActionSpace, ActionTable, Array

BATCH_SIZE = 65536
# How long a run that was told to stop may take before it is left behind.
GRACE_SECONDS = 2.0
Result = TypeVar("Result")
# By the package that made the object; the first that fits.
ADAPTERS = {
    "stable_baselines3": "from_stable_baselines3(model)",
    "d3rlpy": "from_d3rlpy(algorithm)",
    "torch": 'from_torch(module, kind="logits")',
}


@dataclass(frozen=True, eq=False)
class Question:
    """What a policy is asked: its actions, out of `space`, at `observations` (n, ...).

    A policy that can only be sampled answers with `draws` actions a row, from `generator`.
    """

    observations: Array
    space: ActionSpace
    draws: int
    generator: np.random.Generator
    batch_size: int = BATCH_SIZE

    def answers(self, function: Callable[[Array], Any]) -> Array:
        """What a function of observations says, one row each."""
        return call_in_batches(function, self.observations, self.batch_size)


class StatedPolicy(ABC):
    """A target policy together with what its answers mean."""

    @abstractmethod
    def table(self, question: Question) -> ActionTable:
        """What it does at any observations."""

    @abstractmethod
    def tables(self, data: Dataset, draws: int, seed: int) -> tuple[ActionTable, ActionTable]:
        """What it does at the next observation of every row, and at the initial observations."""


# A function whose answers say what they are, an array of probabilities, or a statement.
Policy: TypeAlias = StatedPolicy | Callable[..., Any] | npt.ArrayLike


@dataclass(frozen=True)
class FunctionPolicy(StatedPolicy):
    """A policy that is a function of observations; each final class says what it returns.

    observation_names: what the columns of its observations are called, in order; those of the data
        must be the same, if both are known. A scikit-learn estimator knows its own.
    classes: what the columns of its probabilities are called, in order; they are matched to the
        actions of the data by name. Without any, they are the action codes 0, 1, ...
    """

    function: Callable[..., Any]
    observation_names: tuple[str, ...] = ()
    classes: tuple[Any, ...] = ()

    def tables(self, data: Dataset, draws: int, seed: int) -> tuple[ActionTable, ActionTable]:
        """Asked at the next observations, then at the initial ones."""
        names = self.observation_names or _own_names(self.function)
        _require_uncoded(names, data.observation_names)
        require_same_names("the policy's observations", names, data.observation_names)
        return _asked_twice(self, data, draws, seed)


@dataclass(frozen=True)
class Probabilities(FunctionPolicy):
    """A discrete policy: observations (n, ...) -> probabilities (n, number of actions).

    >>> policy = Probabilities(lambda observations: np.tile([0.9, 0.1], (len(observations), 1)))
    """

    function: Callable[[Array], Any]

    def table(self, question: Question) -> ActionTable:
        """Every action is a candidate."""
        return _of_probabilities(question, question.answers(self.function), self.classes)


@dataclass(frozen=True)
class Deterministic(FunctionPolicy):
    """One action per observation: integers (n,) if discrete, floats (n, k) if continuous.

    Where the data has labels of actions, texts (n,) may be those.

    >>> policy = Deterministic(lambda observations: (observations[:, 0] > 0).astype(int))
    """

    function: Callable[[Array], Any]

    def table(self, question: Question) -> ActionTable:
        """A single candidate a row."""
        answer = question.answers(self.function)
        if self.classes and question.space.number_of_actions is not None:
            question.space.codes_of(self.classes)
        return ActionTable.of_single_actions(question.space.actions(answer))


@dataclass(frozen=True)
class Stochastic(FunctionPolicy):
    """A policy that draws: (observations, NumPy generator) -> actions, as `Deterministic` does.

    It is called several times; randomness must come from the generator for runs to repeat.

    >>> policy = Stochastic(lambda observations, generator: generator.normal(observations[:, :1]))
    """

    function: Callable[[Array, np.random.Generator], Any]

    def table(self, question: Question) -> ActionTable:
        """Equally probable draws."""

        def draw(batch: Array) -> Any:
            return self.function(batch, question.generator)

        drawn = [question.space.actions(question.answers(draw)) for _ in range(question.draws)]
        return ActionTable.of_draws(np.stack(drawn, axis=1))


@dataclass(frozen=True)
class Normal(FunctionPolicy):
    """A continuous policy: observations -> (mean, std) of independent normal actions.

    `mean` is (n, k), or (n,) for k = 1; `std` is like it, or (k,) if the same everywhere.

    >>> policy = Normal(lambda observations: (observations[:, :1], np.array([0.5])))
    """

    function: Callable[[Array], tuple[Any, Any]]

    def table(self, question: Question) -> ActionTable:
        """Equally probable draws; mean and std are asked for once, however many are drawn."""
        mean, std = question.space.mean_and_std(question.answers(self._mean_and_std))
        noise = question.generator.standard_normal((len(mean), question.draws, mean.shape[1]))
        return ActionTable.of_draws(mean[:, None] + std[:, None] * noise, (mean, std))

    def _mean_and_std(self, batch: Array) -> Array:
        """(n, 2, k)."""
        mean, std = (np.asarray(part) for part in self.function(batch))
        return stacked_mean_and_std(mean, std)


@dataclass(frozen=True)
class UndeclaredFunction(FunctionPolicy):
    """A function of one argument whose answer decides what it is.

    Discrete: floats (n, A) are probabilities, integers (n,) are actions. Continuous: (n, k), or
    (n,) if k is 1, are actions.
    """

    function: Callable[[Array], Any]

    def table(self, question: Question) -> ActionTable:
        """As `Probabilities` or as `Deterministic`."""
        answer, space = question.answers(self.function), question.space
        if space.number_of_actions is not None and answer.ndim == 2 and answer.dtype.kind == "f":
            return _of_probabilities(question, answer, _own_classes(self.function))
        return ActionTable.of_single_actions(space.actions(answer))


@dataclass(frozen=True, eq=False)
class ArrayPolicy(StatedPolicy):
    """Probabilities (A,) that hold everywhere, or (S, A) by discrete state."""

    values: Array

    def table(self, question: Question) -> ActionTable:
        """Every action is a candidate."""
        observations, space = question.observations, question.space
        if self.values.ndim == 1:
            everywhere = space.probabilities(self.values[None])
            shape = (len(observations), everywhere.shape[1])
            return ActionTable.of_probabilities(np.broadcast_to(everywhere, shape))
        if self.values.ndim != 2 or observations.ndim != 1:
            raise PolicyError(
                f"an array policy of shape {self.values.shape} does not fit observations of shape"
                f" {observations.shape}; expected (A,) for the same probabilities everywhere, or"
                " (S, A) where observations are discrete states. For one row of probabilities per"
                " row of the data use RowProbabilities(next=..., initial=...)"
            )
        by_state = space.probabilities(self.values, "state")
        if observations.max() >= len(by_state):
            raise PolicyError(
                f"the array policy has {len(by_state)} rows but the data has state"
                f" {observations.max()}; expected one row for each state, at least"
                f" {observations.max() + 1}"
            )
        return ActionTable.of_probabilities(by_state[observations])

    def tables(self, data: Dataset, draws: int, seed: int) -> tuple[ActionTable, ActionTable]:
        """Looked up by state, unless the rows seem to be those of the data."""
        # An (n, A) array would pass for an (S, A) one.
        by_row = len(self.values) in (len(data), data.number_of_source_rows)
        if self.values.ndim == 2 and by_row and len(self.values) != data.number_of_observations:
            raise PolicyError(
                f"an array policy of shape {self.values.shape} has one row per row of the data; for"
                " that use RowProbabilities(next=..., initial=...). If its rows are states, give"
                " the function lambda states: table[states]"
            )
        return _asked_twice(self, data, draws, seed)


def _own_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Those that scikit-learn keeps of the table that an estimator was fitted to."""
    owner = getattr(function, "__self__", function)
    return tuple(str(name) for name in getattr(owner, "feature_names_in_", ()))


def _require_uncoded(names: tuple[str, ...], given: tuple[str, ...]) -> None:
    """Refuse what was fitted to text: the reader has made numbers of it."""
    coded = [(name, one) for name in names for one in given if one.startswith(f"{name}=")]
    if coded and coded[0][0] not in given:
        name, one = coded[0]
        raise PolicyError(
            f"the policy's observations: expected columns as they were logged, such as {name!r},"
            f" got them coded, such as {one!r}; ask the policy yourself, write its probabilities as"
            " columns new_<label> of the log, and give columns:new_"
        )


def _of_probabilities(question: Question, answer: Array, classes: tuple[Any, ...]) -> ActionTable:
    """(n, K) by class, or (n, A) by code."""
    if classes:
        answer = question.space.by_class(answer, classes)
    return ActionTable.of_probabilities(question.space.probabilities(answer))


def _own_classes(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Those of the scikit-learn classifier whose `predict_proba` this is."""
    if getattr(function, "__name__", "") != "predict_proba":
        return ()
    return _classes(getattr(function, "__self__", None))


def _classes(estimator: Any) -> tuple[Any, ...]:
    return tuple(np.asarray(getattr(estimator, "classes_", ())).tolist())


def _estimator_policy(estimator: Any) -> FunctionPolicy:
    """A scikit-learn estimator: probabilities if it has any, else what it predicts."""
    names = _own_names(estimator)

    def asked(method: Callable[[Any], Any]) -> Callable[[Array], Any]:
        # Fitted to a table, it wants one, whose names were checked.
        pandas = sys.modules.get("pandas") if names else None
        if pandas is None:
            return method
        return lambda observations: method(pandas.DataFrame(observations, columns=list(names)))

    probabilities = getattr(estimator, "predict_proba", None)
    if probabilities is not None:
        return Probabilities(asked(probabilities), names, _classes(estimator))
    return Deterministic(asked(estimator.predict), names, _classes(estimator))


def is_estimator(policy: Any) -> bool:
    """Whether this is an estimator of scikit-learn, a pipeline too."""
    # An object of a library that was never imported cannot exist.
    sklearn = sys.modules.get("sklearn.base")
    return sklearn is not None and isinstance(policy, sklearn.BaseEstimator)


def stated(policy: Policy) -> StatedPolicy:
    """Whatever a user may pass, with its meaning."""
    if isinstance(policy, StatedPolicy):
        return policy
    if is_estimator(policy):
        return _estimator_policy(policy)
    if not callable(policy):
        return ArrayPolicy(_policy_array(policy))
    if required_positional_parameters(policy) == 2:
        return Stochastic(policy)
    return UndeclaredFunction(policy)


def required_positional_parameters(function: Callable[..., Any]) -> int:
    """How many arguments a callable insists on; 1 for one that cannot be inspected."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    takes_any = bool(positional) or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not takes_any or len(required) > 2 or keyword_only:
        raise PolicyError(
            "expected a policy that takes (observations) or (observations, generator), got the"
            f" signature {inspect.signature(function)}; wrap it in a function that does"
        )
    return max(1, len(required))


def stacked_mean_and_std(mean: Array, std: Array) -> Array:
    """(n, 2, k) in the type of both; a std (k,), (1, k) or a number holds for every row."""
    columns = mean[:, None] if mean.ndim == 1 else mean
    if mean.ndim == 1 and std.shape == mean.shape:
        std = std[:, None]
    allowed = ((), columns.shape, columns.shape[1:], (1, *columns.shape[1:]))
    if columns.ndim != 2 or std.shape not in allowed:
        raise PolicyError(
            "mean and std: expected shapes (n, k) and (n, k), or (k,) for a std that is the same"
            f" everywhere; got {mean.shape} and {std.shape}"
        )
    return np.stack([columns, np.broadcast_to(std, columns.shape)], axis=1)


def _asked_twice(
    policy: StatedPolicy, data: Dataset, draws: int, seed: int
) -> tuple[ActionTable, ActionTable]:
    space = ActionSpace.of(data)
    # Two streams, so that a draw at one place says nothing about a draw at the other.
    streams = [np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2)]
    places = (data.next_observations, data.require_initial_observations())
    following, initial = (
        policy.table(Question(observations, space, draws, generator))
        for observations, generator in zip(places, streams, strict=True)
    )
    return following, initial


def _policy_array(policy: Any) -> Array:
    try:
        array = np.asarray(policy)
    except (ValueError, TypeError):
        array = np.asarray(None)
    if array.ndim == 0 or array.dtype.kind not in "biuf":
        raise PolicyError(
            "expected a policy that is a function of observations or an array of probabilities, got"
            f" {reprlib.repr(policy)} ({type(policy).__name__}){_adapter_hint(policy)}"
        )
    return array


def _adapter_hint(policy: Any) -> str:
    """What makes a policy of another library's object; its package need not be imported here."""
    packages = {base.__module__.partition(".")[0] for base in type(policy).__mro__}
    found = [adapter for package, adapter in ADAPTERS.items() if package in packages]
    return f"; pass fle.policies.{found[0]}" if found else ""


def call_in_batches(
    function: Callable[[Array], Any], observations: Array, batch_size: int
) -> Array:
    """The policy's answers for all observations, one row each."""
    answers: list[Array] = []
    for start in range(0, len(observations), batch_size):
        # A copy, so that a policy which scales its input in place leaves the data alone.
        batch = np.array(observations[start : start + batch_size], order="C")
        stop = start + len(batch)
        try:
            answer = function(batch)
        except FLEError:
            raise
        except Exception as error:
            raise PolicyError(
                f"the policy failed on rows {start} to {stop - 1}, observations of shape"
                f" {batch.shape} and dtype {batch.dtype}: {type(error).__name__}: {error}"
                f"{_adapter_hint(function)}"
            ) from error
        answers.append(_numbers(answer, start, stop))
        if answers[-1].shape[1:] != answers[0].shape[1:]:
            raise PolicyError(
                f"the policy answered shape {answers[-1].shape} for rows {start} to {stop - 1} but"
                f" {answers[0].shape} for the first rows; expected the same width throughout"
            )
    if not answers:
        raise PolicyError("there are no observations to ask the policy about")
    return np.concatenate(answers)


def _numbers(answer: Any, start: int, stop: int) -> Array:
    try:
        array = np.asarray(answer)
    except (ValueError, TypeError) as error:
        raise PolicyError(
            f"the policy answered {type(answer).__name__} for rows {start} to {stop - 1};"
            f" expected an array of numbers ({error})"
        ) from error
    if array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat):
        array = array.astype(np.str_)
    if array.dtype.kind not in "biufU":
        raise PolicyError(
            f"the policy answered {reprlib.repr(answer)} of dtype {array.dtype} for rows {start} to"
            f" {stop - 1}; expected an array of numbers, or of the labels of actions"
        )
    if array.ndim == 0 or len(array) != stop - start:
        raise PolicyError(
            f"the policy answered shape {array.shape} for {stop - start} observations;"
            f" expected {stop - start} rows, since it is called with a batch"
        )
    return array


class Deadline:
    """Seconds that a policy may take in total, over all its calls."""

    def __init__(self, name: str, seconds: float):
        self._name = name
        self._seconds = float(seconds)
        self._remaining = float(seconds)

    def run(self, work: Callable[[], Result], stop: Callable[[], None]) -> Result:
        """Runs in a thread of its own, which is told to stop, and left if it does not."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def target() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)

        worker = threading.Thread(target=target, daemon=True)
        began = time.monotonic()
        worker.start()
        try:
            worker.join(max(self._remaining, 0.0))
        finally:
            running = worker.is_alive()
            if running:
                stop()
            self._remaining -= time.monotonic() - began
        # Work that ends while it is being waited for may have taken too long all the same.
        if running or self._remaining < 0:
            worker.join(GRACE_SECONDS)
            raise PolicyError(
                f"{self._name}: the policy took longer than {self._seconds:g} s in total; expected"
                " a faster one, or more time (`timeout`)"
            )
        if errors and isinstance(errors[0], SystemExit):
            raise PolicyError(f"{self._name}: the policy tried to end the program") from errors[0]
        if errors:
            raise errors[0]
        return results[0]
