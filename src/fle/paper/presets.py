"""How every method is trained: as the paper did it, and as `fle.evaluate` does by default."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from fle.fitting import Training
from fle.fitting.specs import as_plain, spec_as_plain
from fle.models import GMM, Autoregressive, Categorical, Diffusion, Flow, ModelSpec, Quantile
from fle.models.base import Tuning
from fle.models.ddpm import DDPM
from fle.paper.network import AsPublished
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
ROWS = 10_000
QUICK_ROWS, QUICK_SHARE = 1_500, 10
# The paper's diffusion takes hours, and three runs of it say enough.
MOST_SEEDS = {("diffusion", "paper"): 3}

# Where the paper preset still differs from the released code, for the page.
DIFFERENCES = (
    "One next action and one next return are drawn each time a row is used; the released code "
    "draws both once (the diffusion model: once a stage here too). Categorical and quantile "
    "targets are exact over both.",
    "Gradients are clipped to a norm of 5.",
    "5% of the rows are kept aside to measure the held-out loss.",
    "A component of the mixture has a standard deviation of at least 0.01.",
)


class Setting(NamedTuple):
    """One method in one preset.

    rows: logged rows for each step and latent state.
    repetitions: how often samples are drawn and compared; their mean is one run's figure.
    """

    model: ModelSpec
    training: Training
    rows: int
    repetitions: int

    def as_plain(self) -> dict[str, Any]:
        """All that decides a run's figures but the seed."""
        model: Any = self.model
        if isinstance(model, AsPublished):
            plain = {**spec_as_plain(model.model), "half_width": model.half_width}
        else:
            plain = spec_as_plain(model)
        training = {name: as_plain(value) for name, value in asdict(self.training).items()}
        return {
            "model": plain,
            "training": training,
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
    setting = _ours(method) if preset == "ours" else _paper(experiment, method)
    if not quick:
        return setting
    steps = max(1, setting.training.steps // QUICK_SHARE)
    training = replace(setting.training, steps=steps, draws=1)
    model = setting.model
    if isinstance(model, Diffusion):
        model = replace(model, pool=1, sampling_steps=model.sampling_steps // 2)
    return Setting(model, training, QUICK_ROWS, repetitions=1)


def keys_of(
    experiment: Experiment, methods: tuple[str, ...], presets: tuple[Preset, ...], seeds: range
) -> Iterator[Key]:
    """All runs of an experiment, the seeds of a method together: they share compiled code."""
    for preset in presets:
        for method in METHODS[experiment, preset]:
            if method in methods:
                most = MOST_SEEDS.get((method, preset), len(seeds))
                yield from (Key(experiment, method, preset, seed) for seed in seeds[:most])


def _ours(method: str) -> Setting:
    families: dict[str, Any] = {
        "categorical": Categorical,
        "quantile": Quantile,
        "diffusion": Diffusion,
        "gmm": GMM,
        "autoregressive": Autoregressive,
        "flow": Flow,
    }
    model = families[method]()
    training = Training.finite_horizon().tuned(getattr(model, "tuning", Tuning()))
    return Setting(model, training, ROWS, _repetitions(method))


def _paper(experiment: Experiment, method: str) -> Setting:
    """Appendix E; "two layers of 32" is one hidden layer in the released code."""
    two = experiment == "2d"
    hidden = (32,)
    if method == "categorical":
        atoms, half_width = (30, 4.0) if two else (100, 1.5)
        model = AsPublished(Categorical(atoms=atoms, hidden=hidden), half_width)
        training = _published_training(100 if two else 200, 3e-2 if two else 1e-2)
    elif method == "quantile":
        model = AsPublished(Quantile(quantiles=100, huber=0.05, hidden=hidden))
        training = _published_training(1_000, 1e-1 if experiment == "1d-w1" else 1e-3)
    elif method == "gmm":
        model = AsPublished(GMM(components=10, hidden=hidden, pull=0.0, beta=0.0))
        training = _published_training(10_000 if two else 20_000, 2e-4 if two else 1e-4)
    else:
        model = AsPublished(DDPM())
        training = _published_training(15_000 if two else 5_000, 1e-3)
    return Setting(cast(ModelSpec, model), training, ROWS, _repetitions(method))


def _repetitions(method: str) -> int:
    """A diffusion is costly to sample, and errs by more than the statistic does."""
    return 1 if method == "diffusion" else 3


@dataclass(frozen=True)
class ConstantRate(Training):
    """Training without warm-up and without decay of the learning rate."""

    def learning_rates(self, stage: int, stages: int) -> np.ndarray:
        """The same at every step."""
        return np.full(self.steps, self.learning_rate, np.float32)


def _published_training(steps: int, learning_rate: float) -> Training:
    """The last parameters are the model: the average runs over the last step alone."""
    return ConstantRate(
        steps=steps,
        batch_size=BATCH_SIZE,
        learning_rate=learning_rate,
        weight_decay=0.0,
        draws=1,
        average=1 / steps,
        start="fresh",
    )
