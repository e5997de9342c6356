"""How every method is trained: as the paper did it, and as `fle.evaluate` does by default."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import fle
from fle.models import ModelSpec, family
from fle.models.families.ddpm import DDPM
from fle.models.law import Law, Sizes
from fle.models.objectives import Objective
from fle.models.specs import Moments
from fle.recipe import Resolved, resolve, usual
from fle.tasks import CombinationLock

Preset = Literal["paper", "ours"]
PRESETS: tuple[Preset, ...] = ("ours", "paper")
# "1d-w1" is 1d with the quantile algorithm's other learning rate; its runs serve the W1 table.
Experiment = Literal["1d", "1d-w1", "2d"]
METHODS: dict[tuple[Experiment, Preset], tuple[str, ...]] = {
    ("1d", "ours"): ("categorical", "quantile", "diffusion", "gmm"),
    ("1d", "paper"): ("categorical", "quantile", "diffusion", "gmm"),
    ("1d-w1", "ours"): (),
    ("1d-w1", "paper"): ("quantile",),
    ("2d", "ours"): ("categorical", "diffusion", "gmm", "autoregressive", "flow"),
    ("2d", "paper"): ("categorical", "diffusion", "gmm"),
}
ALL_METHODS = ("categorical", "quantile", "diffusion", "gmm", "autoregressive", "flow")
BATCH_SIZE = 500
# "Two layers of 32" is one hidden layer in the released code.
HIDDEN = (32,)
ROWS = 10_000
QUICK_ROWS, QUICK_SHARE = 1_500, 10
QUICK_MODELS: dict[tuple[str, Preset], ModelSpec] = {
    ("diffusion", "ours"): fle.Diffusion(pool=1, sampling_steps=16)
}
# The paper's diffusion takes hours, and three runs of it say enough.
MOST_SEEDS = {("diffusion", "paper"): 3}

# Where the paper preset still differs from the released code, for the page.
DIFFERENCES = (
    "One next action and one next return are drawn each time a row is used; the released code "
    "draws both once (the diffusion model: once a stage here too). Categorical and quantile "
    "targets are exact over both.",
    "Gradients are clipped to a norm of 5.",
    "5% of the rows are held out to measure the loss.",
    "A component of the mixture has a standard deviation of at least 0.01.",
)


class PlainNetwork(eqx.Module):
    """A perceptron with ReLU activations that starts as PyTorch's linear layers do.

    It stands in for `fle.models.network.Network`, without its gates and its careful start.
    """

    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]

    def __init__(self, widths: Sequence[int], generator: np.random.Generator):
        pairs = list(pairwise(widths))
        self.weights = tuple(
            _uniform((fan_in, fan_out), fan_in, generator) for fan_in, fan_out in pairs
        )
        self.biases = tuple(_uniform((fan_out,), fan_in, generator) for fan_in, fan_out in pairs)

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs for one input vector."""
        return self.finish(self.project(inputs))

    def columns(self, inputs: Float[Array, "rows inputs"]) -> Float[Array, "outputs rows"]:
        """The outputs for a batch, a column for each row."""
        return jax.vmap(self)(inputs).T

    def project(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """The first layer's sums."""
        return inputs @ self.weights[0] + self.biases[0]

    def finish(self, sums: Float[Array, " hidden"]) -> Float[Array, " outputs"]:
        """The outputs from the first layer's sums."""
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            sums = jax.nn.relu(sums) @ weight + bias
        return sums


def _uniform(
    shape: tuple[int, ...], fan_in: int, generator: np.random.Generator
) -> Float[Array, "..."]:
    return jnp.asarray(generator.uniform(-1, 1, shape) / np.sqrt(fan_in), jnp.float32)


@dataclass(frozen=True)
class AsPublished(ModelSpec):
    """A model with a plain network, in the units of the data: nothing is standardised.

    model: what to build.
    half_width: a grid model's range is [-half_width, half_width]; other models need none.
    """

    model: ModelSpec
    half_width: float = 1.0

    name: ClassVar[str] = "as-published"
    standardised: ClassVar[bool] = False

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> Law:
        """The model's law, its network replaced by a plain one of the same widths."""
        built: Any = self.model.build(sizes, recipe, generator)
        shapes = [weight.shape for weight in built.network.weights]
        widths = [shapes[0][0], *(shape[1] for shape in shapes)]
        law: Law = eqx.tree_at(lambda m: m.network, built, PlainNetwork(widths, generator))
        return law

    def objective(self, recipe: Resolved) -> Objective:
        """That of the model."""
        return self.model.objective(recipe)

    def frame(self, samples: np.ndarray) -> Moments:
        """The same at every stage."""
        d = samples.shape[1]
        return np.zeros(d), np.full(d, self.half_width)

    def as_plain(self) -> dict[str, Any]:
        """The name and hyperparameters of the model, and its range."""
        return {**self.model.as_plain(), "half_width": self.half_width}


class Setting(NamedTuple):
    """One method in one preset.

    recipe: what differs from the usual.
    rows: logged rows for each step and latent state.
    repetitions: how often samples are drawn and compared; their mean is one run's figure.
    """

    model: ModelSpec
    recipe: fle.Recipe
    rows: int
    repetitions: int

    @property
    def resolved(self) -> Resolved:
        """The recipe with every setting, as `fle.evaluate` chooses it for a finite horizon.

        Rows and coordinates matter in discounted problems only.
        """
        chosen = usual(repeats=1, rows=self.rows, coordinates=1, tuning=self.model.usual_tuning)
        return resolve(self.recipe, chosen)

    def as_plain(self) -> dict[str, Any]:
        """All that decides a run's figures but the seed."""
        return {
            "model": self.model.as_plain(),
            "recipe": asdict(self.resolved),
            "rows": self.rows,
            "repetitions": self.repetitions,
        }


@dataclass(frozen=True)
class Key:
    """Names one run."""

    experiment: Experiment
    method: str
    preset: Preset
    seed: int

    @property
    def file_name(self) -> str:
        """Of the run's results."""
        return f"{self.experiment}_{self.method}_{self.preset}_seed{self.seed}.json"

    @property
    def label(self) -> str:
        """For the progress bar."""
        return f"{self.experiment} {self.method}, {self.preset}, seed {self.seed}"


def task_of(experiment: Experiment) -> CombinationLock:
    """The combination lock of an experiment."""
    return CombinationLock.paper_2d() if experiment == "2d" else CombinationLock.paper_1d()


def setting_of(experiment: Experiment, method: str, preset: Preset, *, quick: bool) -> Setting:
    """How a run is made; a quick one has fewer rows and shorter training."""
    # A diffusion is costly to sample, and errs by more than the statistic does.
    repetitions = 1 if method == "diffusion" else 3
    model, recipe = _ours(method) if preset == "ours" else _published(experiment, method)
    setting = Setting(model, recipe, ROWS, repetitions)
    if not quick:
        return setting
    steps = max(1, setting.resolved.steps // QUICK_SHARE)
    shorter = replace(recipe, steps=steps, draws=1)
    return Setting(QUICK_MODELS.get((method, preset), model), shorter, QUICK_ROWS, repetitions=1)


def keys_of(
    experiment: Experiment, methods: tuple[str, ...], presets: tuple[Preset, ...], seeds: range
) -> Iterator[Key]:
    """All runs of an experiment, the seeds of a method together: they share compiled code."""
    for preset in presets:
        for method in METHODS[experiment, preset]:
            if method in methods:
                most = MOST_SEEDS.get((method, preset), len(seeds))
                yield from (Key(experiment, method, preset, seed) for seed in seeds[:most])


def _ours(method: str) -> tuple[ModelSpec, fle.Recipe]:
    spec: Any = family(method)
    return spec(), fle.Recipe()


def _published(experiment: Experiment, method: str) -> tuple[ModelSpec, fle.Recipe]:
    """Appendix E of the paper."""
    two = experiment == "2d"
    if method == "categorical":
        atoms, half_width = (30, 4.0) if two else (100, 1.5)
        model = AsPublished(fle.Categorical(atoms=atoms, hidden=HIDDEN), half_width)
        return model, _published_recipe(100 if two else 200, 3e-2 if two else 1e-2)
    if method == "quantile":
        model = AsPublished(fle.Quantile(quantiles=100, huber=0.05, hidden=HIDDEN))
        return model, _published_recipe(1_000, 1e-1 if experiment == "1d-w1" else 1e-3)
    if method == "gmm":
        model = AsPublished(fle.GMM(components=10, hidden=HIDDEN))
        return model, _published_recipe(10_000 if two else 20_000, 2e-4 if two else 1e-4)
    return AsPublished(DDPM()), _published_recipe(15_000 if two else 5_000, 1e-3)


def _published_recipe(steps: int, learning_rate: float) -> fle.Recipe:
    """Plain Adam, and nothing beside; the model of a stage is what its last step left."""
    return fle.Recipe(
        steps=steps,
        batch_size=BATCH_SIZE,
        learning_rate=learning_rate,
        weight_decay=0.0,
        draws=1,
        schedule="constant",
        average=1 / steps,
        start="fresh",
        trace=0.0,
        occupancy=False,
        trend=False,
        component_prior=0.0,
        beta=0.0,
    )
