"""Which model describes the returns: by name, or chosen from the data."""

import difflib

import numpy as np

from fle.data import Dataset
from fle.errors import SettingsError
from fle.models import (
    GMM,
    Autoregressive,
    Categorical,
    Diffusion,
    Flow,
    Gaussian,
    Histogram,
    ModelSpec,
    Quantile,
)

MODELS: dict[str, type] = {
    spec.name: spec
    for spec in (
        GMM,
        Autoregressive,
        Flow,
        Diffusion,
        Histogram,
        Gaussian,
        Categorical,
        Quantile,
    )
}
# Below this many rows the networks of an autoregressive model have too little to learn from.
ROWS_FOR_AUTOREGRESSION = 5_000
# Rewards with at most this many different values make discrete returns.
FEW_VALUES = 20
CONTINUOUS = (GMM, Autoregressive, Flow, Diffusion, Gaussian)


def chosen_model(model: str | ModelSpec, data: Dataset, notes: list[str]) -> ModelSpec:
    """The model asked for. What is to be known about the choice is added to the notes."""
    spec = _named(model, data, notes) if isinstance(model, str) else model
    if isinstance(spec, CONTINUOUS) and _few_values(data.rewards):
        notes.append(
            f"rewards take at most {FEW_VALUES} different values, so returns are discrete: "
            f"{type(spec).__name__} shows each as a narrow peak. Categorical and Histogram have "
            "no such blur beyond the width of their cells"
        )
    return spec


def _named(name: str, data: Dataset, notes: list[str]) -> ModelSpec:
    if name == "auto":
        spec, reason = _by_data(data)
        notes.append(f"model: {type(spec).__name__}, {reason}")
        return spec
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingsError(f"model must be one of auto, {', '.join(MODELS)}; got {name!r}.{hint}")
    return MODELS[name]()


def _by_data(data: Dataset) -> tuple[ModelSpec, str]:
    d, rows = data.rewards.shape[1], len(data)
    if d == 1:
        return GMM(), "the fastest with a density for scalar returns"
    if rows < ROWS_FOR_AUTOREGRESSION:
        return GMM(), (
            f"as {rows:,} rows are few for returns of {d} coordinates "
            f"(Autoregressive from {ROWS_FOR_AUTOREGRESSION:,} rows on)"
        )
    return Autoregressive(), (
        f"which follows any shape of the joint law of {d} coordinates and is fast to sample"
    )


def _few_values(rewards: np.ndarray) -> bool:
    return all(np.unique(column).size <= FEW_VALUES for column in rewards.T)
