"""Hyperparameters: what they have in common, the register of all models, units of returns.

The register is the folder `fle/models/families`, one model a file, found by the name of its file
with dashes for underscores. Nothing is imported before a model is asked for, so that the command
line can list them at once. `register` adds a model of one's own to this process.
"""

import dataclasses
import difflib
import importlib
import inspect
import math
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import fle.models.families
from fle.errors import ModelError, SettingsError
from fle.recipe import TUNING, Resolved, Tuning

if TYPE_CHECKING:
    from fle.models.law import Law, Sizes
    from fle.models.objectives import Objective

# Where one is not enough.
LEAST = {"atoms": 2, "knots": 2}
CELL_LIMIT = 20_000
RANGE_MARGIN = 1.1
PLAIN = (bool, int, float, str, type(None))

Moments = tuple[np.ndarray, np.ndarray]
_OWN: dict[str, type["ModelSpec"]] = {}


@dataclass(frozen=True)
class ModelSpec(ABC):
    """Hyperparameters of a model: a frozen dataclass that builds a law, and says how to fit it.

    name: how files and the command line call it; that of its module, with dashes.
    standardised: whether inputs and rewards are standardised; a law that is defined in the units of
        the data says no.
    any_shape: whether it can take the shape of the returns, so that what it draws where no return
        can lie is blur, and is moved to the nearest place where one can; of a law of a fixed shape
        this would bias the mean.
    reads_codes: whether its law takes codes of many categories (`Sizes.codes`), as `Network` does;
        else they come as one-hot vectors, however many there are.
    has_trend: whether the setting `trend` says something about its law.
    tuning: how its usual recipe differs; the package's own models have theirs in `fle.recipe`.
    """

    name: ClassVar[str]
    standardised: ClassVar[bool] = True
    any_shape: ClassVar[bool] = True
    reads_codes: ClassVar[bool] = False
    has_trend: ClassVar[bool] = False
    tuning: ClassVar[Tuning | None] = None

    def __post_init__(self) -> None:
        for name, value in self.values().items():
            for number in value if isinstance(value, tuple | list) else (value,):
                self._check(name, number)

    def _check(self, name: str, number: Any) -> None:
        least = LEAST.get(name, 1) if isinstance(number, int) else 0
        wrong = isinstance(number, int | float) and not least <= number < math.inf
        if wrong or isinstance(number, bool):
            kind = "a whole number" if isinstance(number, int) else "a number"
            raise SettingsError(
                f"{type(self).__name__} {name}: expected {kind} of at least {least}, got {number}."
            )

    @abstractmethod
    def build(self, sizes: "Sizes", recipe: Resolved, generator: np.random.Generator) -> "Law":
        """A fresh law for data of these sizes."""

    def objective(self, recipe: Resolved) -> "Objective":
        """How the law is fitted: by the likelihood of drawn targets, unless a model says other."""
        from fle.models.objectives import Likelihood

        return Likelihood()

    def fitted_by(self, recipe: Resolved) -> "Objective":
        """The objective that the recipe asks for: the model's own, or the energy distance."""
        from fle.models.objectives import EnergyDistance, GradientObjective

        own = self.objective(recipe)
        if recipe.objective == "own":
            return own
        if not isinstance(own, GradientObjective):
            raise SettingsError(
                f"objective: {type(self).__name__} is fitted at once; expected a model that is "
                "trained, such as GMM or Gaussian, for the energy distance."
            )
        return EnergyDistance()

    def frame(self, samples: np.ndarray) -> Moments:
        """Centre and scale of the returns, from drawn targets (n, d) of a stage."""
        return moments_frame(samples)

    @property
    def usual_tuning(self) -> Tuning:
        """The model's own, that of the package, or none."""
        return self.tuning or TUNING.get(self.name, Tuning())

    def values(self) -> dict[str, Any]:
        """The hyperparameters by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def as_plain(self) -> dict[str, Any]:
        """The model's name and its hyperparameters; what is no plain value is named by its type."""
        return {"name": self.name} | {
            name: as_plain(value) for name, value in self.values().items()
        }

    def require_plain(self) -> None:
        """Refuse a model whose hyperparameters cannot be written to a file."""
        for name, value in self.values().items():
            if not _is_plain(value):
                raise SettingsError(
                    f"A {type(self).__name__} cannot be saved: its {name} is a "
                    f"{type(value).__name__}, expected numbers, strings and tuples of them. "
                    "Evaluate it without `out`."
                )


def as_plain(value: Any) -> Any:
    """Numbers, strings and lists of them, as JSON has them."""
    if isinstance(value, tuple | list):
        return [as_plain(item) for item in value]
    if not _is_plain(value):
        return f"a {type(value).__name__}"
    return value.item() if isinstance(value, np.generic) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, float | np.floating):
        return bool(np.isfinite(value))
    return isinstance(value, (*PLAIN, np.integer, np.bool_))


def require_scalar(model: str, returns: int) -> None:
    """Refuse vector returns where a model has no meaning for them."""
    if returns != 1:
        raise ModelError(
            f"{model} models scalar returns only, and these returns have {returns} coordinates. "
            "Use GMM, Histogram or Categorical, or evaluate one reward at a time."
        )


def grid_cells(model: str, per_dimension: int, returns: int) -> int:
    """Number of cells of a full grid, refused where it cannot be held or learned."""
    cells = per_dimension**returns
    if cells > CELL_LIMIT:
        raise ModelError(
            f"{model} would need {per_dimension}^{returns} = {cells:,} cells for a return of "
            f"{returns} coordinates (at most {CELL_LIMIT:,}). Use fewer cells a coordinate, or "
            "GMM, whose size does not grow with the dimension."
        )
    return cells


def moments_frame(samples: np.ndarray) -> Moments:
    """Centre and scale of unbounded laws: mean and standard deviation."""
    return samples.mean(axis=0), _positive(samples.std(axis=0), samples)


def range_frame(samples: np.ndarray) -> Moments:
    """Centre and half-width of laws on [-1, 1]: the sampled range and a margin."""
    low, high = samples.min(axis=0), samples.max(axis=0)
    return (low + high) / 2, _positive(RANGE_MARGIN * (high - low) / 2, samples)


def identity_frame(samples: np.ndarray) -> Moments:
    """Laws that are defined in the units of the data."""
    return np.zeros(samples.shape[1]), np.ones(samples.shape[1])


def _positive(scale: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Constant returns have no spread: their scale is a hundredth of their size."""
    size = np.abs(samples).max(axis=0)
    return np.where(scale > 1e-5 * size, scale, np.where(size > 0, 1e-2 * size, 1.0))


def names() -> tuple[str, ...]:
    """The names of all models, in alphabetical order."""
    files = [found.name for found in pkgutil.iter_modules(fle.models.families.__path__)]
    return tuple(sorted({*(name.replace("_", "-") for name in files), *_OWN}))


def family(name: str) -> type[ModelSpec]:
    """The hyperparameters of the model of this name."""
    if name in _OWN:
        return _OWN[name]
    if name not in names():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingsError(
            f"model: expected one of auto, {', '.join(names())}; got {name!r}.{hint}"
        )
    module = importlib.import_module(f"fle.models.families.{name.replace('-', '_')}")
    for found in vars(module).values():
        own = inspect.isclass(found) and found.__module__ == module.__name__
        if own and issubclass(found, ModelSpec) and found.name == name:
            return found
    raise ModelError(f"{module.__file__}: expected a ModelSpec with name = {name!r}, found none.")


def register(spec: type[ModelSpec]) -> type[ModelSpec]:
    """Make a model of one's own known by its name, in this process; may be used as a decorator."""
    _OWN[spec.name] = spec
    return spec


def spec_from_plain(plain: dict[str, Any], given: ModelSpec | None, source: str) -> ModelSpec:
    """The hyperparameters that were written; `given` where the register does not know the model."""
    if given is not None:
        if given.as_plain() != plain:
            raise SettingsError(f"{source} was fitted with {plain}, not with {given}.")
        return given
    name = str(plain.get("name"))
    if name not in names():
        raise SettingsError(
            f"{source} was fitted with a model {name!r} that is not part of fle. Give its "
            "hyperparameters, fle.load(directory, model=...), or register it before, "
            "fle.models.register(...)."
        )
    spec: Any = family(name)
    values = {key: _tuples(value) for key, value in plain.items() if key != "name"}
    expected = set(spec.__dataclass_fields__)
    if set(values) - expected:
        raise SettingsError(
            f"{source}: a {name} has no {', '.join(sorted(set(values) - expected))}; expected "
            f"{', '.join(sorted(expected))}."
        )
    built: ModelSpec = spec(**values)
    return built


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
