"""Which model is fitted where none is named, and which exact class a note suggests."""

from typing import Any

from fle.data import Dataset
from fle.errors import SettingsError
from fle.fitting.problem import Question
from fle.fitting.structure import explained_by_polynomial
from fle.fitting.supports import return_limits
from fle.models.specs import ModelSpec, family
from fle.models.support import lattice_of
from fle.policies import TabulatedPolicy

# Below this many rows the networks of an autoregressive model have too little to learn from.
ROWS_FOR_AUTOREGRESSION = 5_000
# Up to as many possible returns, each gets a probability of its own [0030].
MOST_POINTS = 151


def chosen_model(
    model: str | ModelSpec, data: Dataset, question: Question
) -> tuple[ModelSpec, list[str]]:
    """The model asked for, and what is to be known about the choice."""
    notes = []
    if model == "auto":
        spec, reason = _model_by_data(data, question)
        notes.append(f"model: {type(spec).__name__}, {reason}")
    elif isinstance(model, str):
        spec = _named_model(model)
    else:
        spec = model
    return spec, notes


def suggested(data: Dataset, question: Question, target: TabulatedPolicy) -> list[str]:
    """A class that is fitted exactly, where the log has nothing against it [0040]."""
    if question.horizon is not None or question.rows != "all":
        return []
    found = explained_by_polynomial(data, target, question.gamma)
    return [] if found is None else [found]


def _named_model(name: str) -> ModelSpec:
    spec: Any = family(name)
    try:
        return spec()
    except TypeError as error:
        raise SettingsError(
            f"The model {name!r} needs hyperparameters ({error}). Give them, as "
            f"model=fle.{spec.__name__}(...)."
        ) from error


def _model_by_data(data: Dataset, question: Question) -> tuple[ModelSpec, str]:
    d, rows = data.rewards.shape[1], len(data)
    points = _possible_returns(data, question)
    if d == 1 and 1 < points <= MOST_POINTS:
        categorical: Any = family("categorical")
        return categorical(atoms=points), (
            f"whose atoms are the {points} returns that sums of the logged rewards can be"
        )
    if d == 1:
        return family("gmm")(), "the fastest with a density for scalar returns"
    if rows < ROWS_FOR_AUTOREGRESSION:
        return family("gmm")(), (
            f"as {rows:,} rows are few for returns of {d} coordinates "
            f"(Autoregressive from {ROWS_FOR_AUTOREGRESSION:,} rows on)"
        )
    return family("autoregressive")(), (
        f"which follows any shape of the joint distribution of {d} coordinates and is fast to "
        "sample"
    )


def _possible_returns(data: Dataset, question: Question) -> int:
    """How many returns there can be, where rewards lie on a lattice and are summed; else 0."""
    spacing = lattice_of(data.rewards, data.terminations).spacing
    if question.horizon is None or (question.gamma != 1 and question.horizon > 1) or not spacing[0]:
        return 0
    limits = return_limits(data.rewards, data.terminations, 1.0, question.horizon)
    low, high = limits[-1]
    return 1 + round(float((high - low)[0] / spacing[0]))
