"""The paper's theory, simulated: exact fits, exact C and ζ, errors by rows, and the bounds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fle import LinearQuadratic, RewardMixture
from fle.errors import SettingsError
from fle.files import read_json, write_json
from fle.models.law import Sizes
from fle.models.objectives import Transition
from fle.paper.exact import (
    Discount,
    discounted_occupancy,
    evaluate_form,
    lattice_total_variation,
    lattice_update,
    lattice_wasserstein,
    logged_outcomes,
    lqr_condition_number,
    lqr_zetas,
    mixture_total_variation,
    mixture_zetas,
    policy_nodes,
    quadratic_form,
    refined,
    same_length,
    spacing,
    start_laws,
    step_occupancies,
    true_form,
    true_outcomes,
)
from fle.paper.lock_runs import Table
from fle.recipe import ONE_FIT
from fle.returns import cvar
from fle.tasks import (
    LQR,
    SparseTerminalMDP,
    TabularMDP,
    random_mdp,
    random_policy,
    sparse_terminal,
    uniform_policy,
)
from fle.trust import bounds

FloatArray = NDArray[np.float64]

EXPECTED_SLOPE, SLOPE_TOLERANCE = -0.5, 0.1

SIZES = (3_000, 12_000, 48_000, 192_000)
QUICK_SIZES = SIZES[:3]
SEEDS = range(40)
DELTA = 0.1
# Half-discounted updates after which the truth is known to 2^-15 of a return.
TRUTH_STAGES = 16


class Looseness(NamedTuple):
    """Measured error over bound: its median and its largest value; above 1 the bound is broken."""

    median: float
    largest: float


@dataclass(frozen=True, eq=False)
class Study:
    """One distance, measured for several sizes of the data and several seeds.

    Args:
        name: of the task.
        distance: what is measured, with its unit.
        sizes: (m,) rows of all stages.
        errors: (m, seeds).
        bounds: by name, (m, seeds) each.
        coverage: C that the bounds use.
    """

    name: str
    distance: str
    sizes: FloatArray
    errors: FloatArray
    bounds: Mapping[str, FloatArray]
    coverage: float

    def __post_init__(self) -> None:
        shape = (len(self.sizes), self.errors.shape[-1])
        if len(self.sizes) < 2 or any(
            values.shape != shape for values in (self.errors, *self.bounds.values())
        ):
            raise SettingsError(
                f"A study needs at least 2 sizes and one number for each size and seed {shape}."
            )

    @property
    def mean_errors(self) -> FloatArray:
        """(m,) over the seeds."""
        return self.errors.mean(axis=1)

    @property
    def standard_errors(self) -> FloatArray:
        """(m,) of the mean errors."""
        return self.errors.std(axis=1, ddof=1) / np.sqrt(self.errors.shape[1])

    @property
    def slope(self) -> float:
        """Least-squares slope of log mean error against log n; theory says -1/2."""
        return float(self._slope_weights @ np.log(self.mean_errors))

    @property
    def slope_error(self) -> float:
        """Standard error of the slope, from the spread over seeds."""
        relative = self.standard_errors / self.mean_errors
        return float(np.sqrt(self._slope_weights**2 @ relative**2))

    def looseness(self) -> dict[str, Looseness]:
        """How much of each bound is used."""
        ratios = {name: self.errors / bound for name, bound in self.bounds.items()}
        return {
            name: Looseness(float(np.median(ratio)), float(ratio.max()))
            for name, ratio in ratios.items()
        }

    def violations(self) -> dict[str, int]:
        """How often the measured error exceeds each bound."""
        return {name: int((self.errors > bound).sum()) for name, bound in self.bounds.items()}

    @property
    def _slope_weights(self) -> FloatArray:
        centred = np.log(self.sizes) - np.log(self.sizes).mean()
        return centred / (centred @ centred)


def as_plain(study: Study, settings: dict[str, Any]) -> dict[str, Any]:
    """All of a study, and what follows from it."""
    return {
        "settings": settings,
        "name": study.name,
        "distance": study.distance,
        "coverage": float(study.coverage),
        "errors": study.errors.tolist(),
        "bounds": {name: values.tolist() for name, values in study.bounds.items()},
        "slope": study.slope,
        "slope_error": study.slope_error,
        "violations": study.violations(),
        "looseness": {name: list(value) for name, value in study.looseness().items()},
    }


def from_plain(plain: dict[str, Any]) -> Study:
    """The study that was written."""
    return Study(
        plain["name"],
        plain["distance"],
        np.array(plain["settings"]["sizes"], dtype=float),
        np.array(plain["errors"]),
        {name: np.array(values) for name, values in plain["bounds"].items()},
        plain["coverage"],
    )


def table(study: Study) -> Table:
    """Mean error and mean bounds against n, the slope, and how often a bound was broken."""
    names = list(study.bounds)
    rows = [
        (
            f"{int(n):,}",
            f"{study.mean_errors[i]:.3g} ± {study.standard_errors[i]:.1g}",
            *(f"{study.bounds[name][i].mean():.3g}" for name in names),
        )
        for i, n in enumerate(study.sizes)
    ]
    loose = study.looseness()
    rows.append(("largest error / bound", "", *(f"{loose[name].largest:.2g}" for name in names)))
    rows.append(("times exceeded", "", *(str(study.violations()[name]) for name in names)))
    remark = (
        f"Slope of log error against log n: {study.slope:.3f} ± {study.slope_error:.3f} "
        f"(theory: {EXPECTED_SLOPE:g}; {verdict(study)}). {study.errors.shape[1]} seeds. "
        f"C = {study.coverage:.3g}."
    )
    header = ("n", f"error ({study.distance})", *(f"bound: {name}" for name in names))
    return Table(f"Theory: {study.name}", header, tuple(rows), remark)


def verdict(study: Study) -> str:
    """Whether the slope is what theory says."""
    near = abs(study.slope - EXPECTED_SLOPE) <= SLOPE_TOLERANCE
    return f"within {SLOPE_TOLERANCE:g}" if near else f"not within {SLOPE_TOLERANCE:g}"


def tabular_study(sizes: Sequence[int] = SIZES, seeds: Sequence[int] = SEEDS) -> Study:
    """The paper's tabular example, fitted by `RewardMixture`: TV of the policy's return.

    Bounds: "theorem", from the true C and the ζ of these very fits; "corollary", which knows only
    the size of the class and holds with probability 0.9.
    """
    task, policy = sparse_terminal(3, 2, horizon=3, seed=0, laws=3), random_policy(3, 2, seed=1)
    states, actions = policy.shape
    data = np.full(policy.shape, 1 / policy.size)
    coverage = bounds.density_ratio(step_occupancies(task, policy), data)
    truth, spec = task.policy_weights(policy), sparse_spec(task)
    errors, theorem, corollary = _tables(3, sizes, seeds)
    for i, n in enumerate(sizes):
        brackets = bounds.tabular_log_brackets_by_integral(
            bounds.bracket_width(n), states, actions, laws=3
        )
        corollary[i] = bounds.bracketing_bound(n, task.horizon, brackets, DELTA, coverage)
        for j, seed in enumerate(seeds):
            weights = fit_sparse(spec, task, policy, n // task.horizon, seed)
            estimate = np.einsum("s,sa,sak->k", task.initial, policy, weights[0])
            errors[i, j] = mixture_total_variation(task.reward_laws, estimate, truth)
            zetas = mixture_zetas(task, policy, weights, data)
            theorem[i, j] = bounds.total_variation_bound(zetas, coverage)
    both = {"theorem": theorem, "corollary": corollary}
    return Study("tabular", "total variation", np.array(sizes), errors, both, coverage)


def sparse_spec(task: SparseTerminalMDP) -> RewardMixture:
    """To be made once a task, as fits are compiled for its very laws."""
    return RewardMixture(tuple(stats.norm(m, s) for m, s in zip(*task.reward_laws, strict=True)))


def fit_sparse(
    spec: RewardMixture, task: SparseTerminalMDP, policy: FloatArray, rows: int, seed: int
) -> FloatArray:
    """Mixture weights (H, S, A, K) of all steps, from `rows` rows a step."""
    wanted = rows * task.horizon
    drawn = task.offline_data(wanted + 8 * task.horizon * int(np.sqrt(wanted) + 1), seed, initial=1)
    states, actions = policy.shape

    def transitions(step: int) -> Transition:
        # The same number at every step, so that the fit is compiled once a size.
        chosen = np.flatnonzero(drawn["steps"] == step)[:rows]
        pairs = drawn["observations"][chosen], drawn["actions"][chosen]
        following = drawn["next_observations"][chosen]
        return Transition(
            inputs=jnp.hstack([jnp.eye(states)[pairs[0]], jnp.eye(actions)[pairs[1]]]),
            reward=jnp.asarray(drawn["rewards"][chosen, None], jnp.float32),
            discount=jnp.full((len(chosen), 1), float(step < task.horizon - 1)),
            next_observation=jnp.eye(states)[following],
            next_actions=jnp.broadcast_to(jnp.eye(actions), (len(chosen), actions, actions)),
            probabilities=jnp.asarray(policy[following], jnp.float32),
        )

    sizes = Sizes(states, actions, 1, True, True)
    laws = _fitted(spec, sizes, map(transitions, reversed(range(task.horizon))))
    return np.stack([np.asarray(law.weights, dtype=float) for law in laws[::-1]])


def _fitted(
    spec: RewardMixture | LinearQuadratic, sizes: Sizes, stages: Iterable[Transition]
) -> list[Any]:
    """The laws of all stages, in the order of fitting, by their objective alone.

    `fle.evaluate` would measure and sample every stage too, which takes ten times as long.
    """
    objective = spec.objective(ONE_FIT)
    # Exact models start from fixed values and draw nothing.
    law: Any = spec.build(sizes, ONE_FIT, np.random.default_rng(0))
    laws = []
    for transitions in stages:
        law = objective.solve(law, law, transitions, jnp.ones(len(transitions.inputs)))
        laws.append(law)
    return laws


def lqr_study(
    sizes: Sequence[int] = SIZES, seeds: Sequence[int] = SEEDS, task: LQR | None = None
) -> Study:
    """The paper's LQR example, fitted by `LinearQuadratic`: TV of the policy's return.

    The bound uses the relative condition number (1 where it is smaller) and ζ of the mean gaps.
    """
    problem = LQR.example(horizon=5) if task is None else task
    coverage = max(1.0, lqr_condition_number(problem))
    distance = _LQRDistance(problem)
    errors, theorem = _tables(2, sizes, seeds)
    for i, n in enumerate(sizes):
        for j, seed in enumerate(seeds):
            forms = fit_lqr(problem, n // problem.horizon, seed)
            errors[i, j] = distance(forms[0])
            theorem[i, j] = bounds.total_variation_bound(lqr_zetas(problem, forms), coverage)
    return Study("lqr", "total variation", np.array(sizes), errors, {"theorem": theorem}, coverage)


def fit_lqr(
    task: LQR, rows: int, seed: int, *, stages: int | None = None, gamma: float = 1.0
) -> list[FloatArray]:
    """Quadratic forms of the mean return, the last stage first, from `rows` rows a stage.

    With as many stages as steps, the default, these are the forms of steps 0..H-1.
    """
    number = task.horizon if stages is None else stages
    data = task.offline_data(rows * number, seed, initial=1)
    following = data["next_observations"]
    columns = {
        "inputs": np.hstack([data["observations"], data["actions"]]),
        "reward": data["rewards"][:, None],
        "next_observation": following,
        "next_actions": task.target_policy(following)[:, None],
        "probabilities": np.ones((len(following), 1)),
    }

    def transitions(stage: int) -> Transition:
        chosen = slice(stage * rows, (stage + 1) * rows)
        logged: dict[str, Any] = {
            name: jnp.asarray(values[chosen], jnp.float32) for name, values in columns.items()
        }
        return Transition(discount=jnp.full((rows, 1), gamma if stage > 0 else 0.0), **logged)

    sizes = Sizes(task.state_dim, task.action_dim, 1, False, False)
    laws = _fitted(LinearQuadratic(task.noise_std), sizes, map(transitions, range(number)))
    return [quadratic_form(law.coefficients) for law in laws[::-1]]


class _LQRDistance:
    """TV of the policy's return: Gaussians of one variance, mixed over the initial states."""

    def __init__(self, task: LQR, nodes: int = 24, points: int = 600):
        self._inputs, self._weights = policy_nodes(task, 0, nodes)
        self._std = float(np.sqrt(task.true_variance(0)))
        means = evaluate_form(true_form(task), self._inputs)
        margin = 8 * self._std
        self._grid = np.linspace(means.min() - margin, means.max() + margin, points)
        self._truth = self._density(means)

    def __call__(self, form: FloatArray) -> float:
        density = self._density(evaluate_form(form, self._inputs))
        step = self._grid[1] - self._grid[0]
        return float(0.5 * np.abs(density - self._truth).sum() * step)

    def _density(self, means: FloatArray) -> FloatArray:
        standard = (self._grid - means[:, None]) / self._std
        return self._weights @ np.exp(-0.5 * standard**2) / (self._std * np.sqrt(2 * np.pi))


def cvar_study(
    sizes: Sequence[int] = SIZES, seeds: Sequence[int] = SEEDS, level: float = 0.1
) -> Study:
    """CVaR of a finite MDP with rewards 0 and 1, fitted exactly: the paper's Lipschitz bound.

    Bounds: "lipschitz" and "sharp lipschitz" from the measured TV, "theorem" from C and ζ.
    """
    task, policy = _unit_reward_mdp(horizon=5)
    data = np.full(policy.shape, 1 / policy.size)
    coverage = bounds.density_ratio(step_occupancies(task, policy), data)
    support, truth = task.policy_pmf(policy)
    true_cvar = cvar(support, level, weights=truth)
    errors, lipschitz, theorem = _tables(3, sizes, seeds)
    for i, n in enumerate(sizes):
        laws, zetas = fit_lattice(task, policy, n // task.horizon, seeds, stages=task.horizon)
        estimates = np.einsum("s,sa,bsal->bl", task.initial, policy, laws)
        distances = lattice_total_variation(estimates, truth)
        for j, estimate in enumerate(estimates):
            errors[i, j] = abs(cvar(support, level, weights=estimate) - true_cvar)
            lipschitz[i, j] = bounds.cvar_bound(distances[j], task.horizon, level)
            distance = bounds.total_variation_bound(zetas[:, j], coverage)
            theorem[i, j] = bounds.cvar_bound(distance, task.horizon, level)
    named = {"lipschitz": lipschitz, "sharp lipschitz": lipschitz / 2, "theorem": theorem}
    return Study("cvar", f"CVaR at {level:g}", np.array(sizes), errors, named, coverage)


def discounted_study(
    sizes: Sequence[int] = SIZES, seeds: Sequence[int] = SEEDS, order: float = 1.0, stages: int = 10
) -> Study:
    """W_p of a finite MDP discounted by one half, fitted exactly: "refined" and "simplified"."""
    gamma = 0.5
    task, policy = _unit_reward_mdp(horizon=TRUTH_STAGES)
    data = np.full(policy.shape, 1 / policy.size)
    coverage = bounds.density_ratio(discounted_occupancy(task, policy, gamma), data)
    diameter = bounds.return_diameter(gamma)
    outcomes = true_outcomes(task)
    laws = start_laws(outcomes)
    for stage in range(1, TRUTH_STAGES + 1):
        laws = lattice_update(outcomes, policy, laws, stage=stage, discount="half")
    truth = np.einsum("s,sa,sal->l", task.initial, policy, laws)
    # What the truth itself leaves out may add to the error, so it is added.
    missing = diameter * gamma**TRUTH_STAGES
    errors, full, simplified = _tables(3, sizes, seeds)
    for i, n in enumerate(sizes):
        fits, zetas = fit_lattice(task, policy, n // stages, seeds, stages=stages, order=order)
        estimates = np.einsum("s,sa,bsal->bl", task.initial, policy, fits)
        pair = same_length(refined(estimates, stages, TRUTH_STAGES), truth)
        errors[i] = missing + lattice_wasserstein(*pair, spacing(TRUTH_STAGES, "half"), order)
        for j in range(len(seeds)):
            full[i, j] = bounds.wasserstein_bound(zetas[:, j], coverage, gamma, diameter, order)
            simplified[i, j] = bounds.simplified_wasserstein_bound(
                zetas[:, j].max(), stages, coverage, gamma, diameter, order
            )
    both = {"refined": full, "simplified": simplified}
    return Study("discounted", f"Wasserstein-{order:g}", np.array(sizes), errors, both, coverage)


def fit_lattice(
    task: TabularMDP,
    policy: FloatArray,
    rows: int,
    seeds: Sequence[int],
    *,
    stages: int,
    order: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """The last stage's laws (seeds, S, A, L) and ζ (stages, seeds), in the order of fitting.

    ζ is of TV without an order (undiscounted), of W_order with it (discounted by one half).
    """
    discount: Discount = "none" if order is None else "half"
    data = np.full(policy.shape, 1 / policy.size)
    generators = [np.random.default_rng([seed, rows]) for seed in seeds]
    truth = true_outcomes(task)
    laws = np.repeat(start_laws(truth)[None], len(seeds), axis=0)
    zetas = []
    for stage in range(1, stages + 1):
        logged = logged_outcomes(truth, data, rows, generators)
        target = lattice_update(truth, policy, laws, stage=stage, discount=discount)
        laws = lattice_update(logged, policy, laws, stage=stage, discount=discount)
        if order is None:
            squared = lattice_total_variation(laws, target) ** 2
            zetas.append(np.sqrt(np.einsum("sa,bsa->b", data, squared)))
        else:
            gaps = lattice_wasserstein(laws, target, spacing(stage, discount), order)
            powers = np.einsum("sa,bsa->b", data, gaps ** (2 * order))
            zetas.append(powers ** (1 / (2 * order)))
    return laws, np.stack(zetas)


def _unit_reward_mdp(horizon: int) -> tuple[TabularMDP, FloatArray]:
    task = random_mdp(3, 2, seed=3, horizon=horizon, reward_values=(0, 1))
    # Away from the uniform policy of the data, so that C is not 1.
    return task, 0.7 * random_policy(3, 2, seed=4) + 0.3 * uniform_policy(3, 2)


def _tables(number: int, sizes: Sequence[int], seeds: Sequence[int]) -> list[FloatArray]:
    return [np.zeros((len(sizes), len(seeds))) for _ in range(number)]


STUDIES: dict[str, Callable[[Sequence[int], Sequence[int]], Study]] = {
    "tabular": tabular_study,
    "lqr": lqr_study,
    "cvar": cvar_study,
    "discounted": discounted_study,
}


def settings_of_studies(*, quick: bool) -> dict[str, list[int]]:
    """Sizes and seeds of every study."""
    return {"sizes": list(QUICK_SIZES if quick else SIZES), "seeds": list(SEEDS)}


def is_kept(path: Path, *, quick: bool) -> bool:
    """Whether the study is there with these sizes and seeds."""
    return path.exists() and read_json(path)["settings"] == settings_of_studies(quick=quick)


def keep(name: str, path: Path, *, quick: bool) -> None:
    """Compute a study and write it."""
    settings = settings_of_studies(quick=quick)
    write_json(path, as_plain(STUDIES[name](settings["sizes"], settings["seeds"]), settings))
