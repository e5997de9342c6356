"""What the paper's theorems speak of, computed exactly on tasks that are known: d^π, C and ζ."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fle.errors import SettingsError
from fle.tasks import LQR, GaussianLaws, SparseTerminalMDP, TabularMDP
from fle.trust.bounds import gaussian_zeta, relative_condition_number

FloatArray = NDArray[np.float64]
FiniteMDP = TabularMDP | SparseTerminalMDP
Discount = Literal["none", "half"]

# Grid of the mixtures' densities: points, and how many standard deviations beyond the last mean.
GRID_POINTS = 4_000
GRID_MARGIN = 8.0


# Occupancies.


def step_occupancies(mdp: FiniteMDP, policy: ArrayLike) -> FloatArray:
    """d^π_h, (H, S, A); what has terminated is missing, so a step may add up to less than 1."""
    probabilities = np.asarray(policy, dtype=float)
    moves = _moves(mdp)
    occupancy = mdp.initial[:, None] * probabilities
    steps = [occupancy]
    for _ in range(mdp.horizon - 1):
        occupancy = np.einsum("sa,sat->t", occupancy, moves)[:, None] * probabilities
        steps.append(occupancy)
    return np.stack(steps)


def discounted_occupancy(mdp: FiniteMDP, policy: ArrayLike, gamma: float) -> FloatArray:
    """d^π = (1 - γ) Σ_h γ^h d^π_h, (S, A): the paper's text divides where its proofs multiply."""
    probabilities = np.asarray(policy, dtype=float)
    between_states = np.einsum("sa,sat->st", probabilities, _moves(mdp))
    states = np.linalg.solve(np.eye(len(mdp.initial)) - gamma * between_states.T, mdp.initial)
    return (1 - gamma) * states[:, None] * probabilities


def _moves(mdp: FiniteMDP) -> FloatArray:
    if isinstance(mdp, TabularMDP):
        return (1 - mdp.terminations)[..., None] * mdp.transitions
    return mdp.transitions


# Mixtures of known laws.


def mixture_total_variation(laws: GaussianLaws, first: ArrayLike, second: ArrayLike) -> FloatArray:
    """TV of mixtures with weights (..., K): ½∫|Σ_k (v_k - w_k) law_k|, on a fine grid."""
    margin = GRID_MARGIN * laws.stds.max()
    grid = np.linspace(laws.means.min() - margin, laws.means.max() + margin, GRID_POINTS)
    densities = stats.norm.pdf(grid[:, None], *laws)
    difference = (np.asarray(first, dtype=float) - np.asarray(second, dtype=float)) @ densities.T
    return 0.5 * np.abs(difference).sum(axis=-1) * (grid[1] - grid[0])


def mixture_zetas(
    mdp: SparseTerminalMDP, policy: ArrayLike, weights: ArrayLike, data: ArrayLike
) -> FloatArray:
    """ζ_h = (E_data TV²(f_h, T f_{h+1}))^½, (H,), of fitted weights (H, S, A, K)."""
    fitted = np.asarray(weights, dtype=float)
    of_state = np.einsum("tb,htbk->htk", np.asarray(policy, dtype=float), fitted[1:])
    onward = np.einsum("sat,htk->hsak", mdp.transitions, of_state)
    last = np.eye(len(mdp.reward_laws.means))[mdp.law_of_pair]
    targets = np.concatenate([onward, last[None]])
    distances = mixture_total_variation(mdp.reward_laws, fitted, targets)
    return np.sqrt(np.einsum("sa,hsa->h", np.asarray(data, dtype=float), distances**2))


# Linear-quadratic regulators. Mean returns are quadratic: z ↦ zᵀ S z with z = (x, a).


class Nodes(NamedTuple):
    """A quadrature rule over (x, a): nodes (m, dx + da) and weights (m,) that add up to 1."""

    inputs: FloatArray
    weights: FloatArray


def data_nodes(task: LQR, number: int = 3) -> Nodes:
    """The logged pairs; `number` nodes a coordinate are exact to degree 2 number - 1."""
    states = _box_rule(task.data_halfwidth, task.state_dim, number)
    points, weights = np.polynomial.hermite_e.hermegauss(number)
    noise = _product([task.exploration_std * points] * task.action_dim)
    noise_weights = _product([weights / weights.sum()] * task.action_dim).prod(axis=1)
    x = np.repeat(states.inputs, len(noise), axis=0)
    a = task.target_policy(x) + np.tile(noise, (len(states.inputs), 1))
    return Nodes(np.hstack([x, a]), np.outer(states.weights, noise_weights).reshape(-1))


def policy_nodes(task: LQR, step: int, number: int = 3) -> Nodes:
    """The pairs that the target policy visits at a step."""
    states = _box_rule(task.initial_halfwidth, task.state_dim, number)
    x = states.inputs @ np.linalg.matrix_power(task.closed_loop, step).T
    return Nodes(np.hstack([x, task.target_policy(x)]), states.weights)


def quadratic_form(coefficients: ArrayLike) -> FloatArray:
    """S of the coefficients of all distinct products, in the order of `LinearQuadratic`."""
    values = np.asarray(coefficients, dtype=float)
    size = round((np.sqrt(1 + 8 * values.size) - 1) / 2)
    form = np.zeros((size, size))
    form[np.triu_indices(size)] = values
    return (form + form.T) / 2


def bellman_form(task: LQR, form: FloatArray, gamma: float = 1.0) -> FloatArray:
    """S of the Bellman target of a mean return: zᵀ S' z = r̄(z) + γ (Gz)ᵀ S (Gz), Gz = (x', Kx')."""
    moved = np.hstack([task.A, task.B])
    onward = np.vstack([moved, task.K @ moved])
    reward = np.zeros_like(form)
    dx = task.state_dim
    reward[:dx, :dx], reward[dx:, dx:] = -task.Q, -task.R
    return reward + gamma * onward.T @ form @ onward


def evaluate_form(form: FloatArray, inputs: FloatArray) -> FloatArray:
    """zᵀ S z of every row."""
    return np.einsum("ni,ij,nj->n", inputs, form, inputs)


def lqr_condition_number(task: LQR) -> float:
    """The largest relative condition number of the quadratic features over the steps."""
    data = second_moment(data_nodes(task))
    return max(
        relative_condition_number(second_moment(policy_nodes(task, step)), data)
        for step in range(task.horizon)
    )


def lqr_gaps(task: LQR, forms: Sequence[FloatArray]) -> list[FloatArray]:
    """S of f_h minus S of T f_{h+1} for every step, from the fitted forms of steps 0..H-1."""
    following = [*forms[1:], np.zeros_like(forms[0])]
    return [form - bellman_form(task, after) for form, after in zip(forms, following, strict=True)]


def lqr_zetas(task: LQR, forms: Sequence[FloatArray]) -> FloatArray:
    """`gaussian_zeta` of every step, (H,); the expectation of the squared gap is exact."""
    inputs, weights = data_nodes(task)
    return np.array(
        [
            gaussian_zeta(
                float(np.sqrt(weights @ evaluate_form(gap, inputs) ** 2)),
                float(np.sqrt(task.true_variance(step))),
            )
            for step, gap in enumerate(lqr_gaps(task, forms))
        ]
    )


def true_form(task: LQR) -> FloatArray:
    """S of the true mean return at step 0."""
    size = task.state_dim + task.action_dim
    form = np.zeros((size, size))
    for _ in range(task.horizon):
        form = bellman_form(task, form)
    return form


def second_moment(nodes: Nodes) -> FloatArray:
    """E[φφᵀ] of all distinct products, (F, F)."""
    rows, columns = np.triu_indices(nodes.inputs.shape[1])
    features = nodes.inputs[:, rows] * nodes.inputs[:, columns]
    return (features * nodes.weights[:, None]).T @ features


def _box_rule(halfwidth: float, dimension: int, number: int) -> Nodes:
    points, weights = np.polynomial.legendre.leggauss(number)
    masses = _product([weights / 2] * dimension).prod(axis=1)
    return Nodes(_product([halfwidth * points] * dimension), masses)


def _product(axes: Sequence[FloatArray]) -> FloatArray:
    """All combinations, one a row."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


# Finite MDPs with whole rewards: the class is every table of probabilities on a lattice of returns.
# Its maximum-likelihood fit to Bellman targets is the Bellman update of the logged frequencies, so
# nothing is approximated. The lattice is closed under updates with a discount of one or one half.


class Outcomes(NamedTuple):
    """p(reward, next state | s, a), (..., S, A, K, S + 1): the last state is "terminated"."""

    rewards: NDArray[np.int64]
    probabilities: FloatArray


def true_outcomes(mdp: TabularMDP) -> Outcomes:
    """The MDP itself."""
    if mdp.reward_values.min() < 0:
        raise SettingsError(
            f"reward_values: expected at least 0 on a lattice, got {mdp.reward_values.min()}."
        )
    ends = mdp.terminations[..., None]
    moves = np.concatenate([(1 - ends) * mdp.transitions, ends], axis=-1)
    joint = mdp.reward_probabilities[..., :, None] * moves[..., None, :]
    return Outcomes(mdp.reward_values, joint)


def logged_outcomes(
    truth: Outcomes, data: ArrayLike, rows: int, generators: list[np.random.Generator]
) -> Outcomes:
    """Frequencies in `rows` rows, one data set a generator; pairs (s, a) come with law `data`.

    Counts are drawn at once, which is the same as counting rows. A pair without rows has equal
    frequencies.
    """
    joint = np.asarray(data, dtype=float)[..., None, None] * truth.probabilities
    flat = joint.reshape(-1) / joint.sum()
    counts = np.stack([generator.multinomial(rows, flat) for generator in generators])
    counts = counts.reshape(len(generators), *joint.shape).astype(float)
    totals = counts.sum(axis=(-2, -1), keepdims=True)
    equal = 1 / (counts.shape[-2] * counts.shape[-1])
    return Outcomes(truth.rewards, np.where(totals > 0, counts / np.maximum(totals, 1), equal))


def start_laws(outcomes: Outcomes) -> FloatArray:
    """A return of 0 for certain, (..., S, A, 1)."""
    return np.ones((*outcomes.probabilities.shape[:-2], 1))


def lattice_update(
    outcomes: Outcomes, policy: ArrayLike, laws: FloatArray, *, stage: int, discount: Discount
) -> FloatArray:
    """The Bellman update number `stage` (from 1) of laws (..., S, A, L) on the lattice 0, 1, ....

    Discounted by one half, the lattice of stage t has spacing 2^(1-t): y/2 keeps its place, and a
    reward moves by 2^(t-1) places.
    """
    of_state = np.einsum("sa,...sal->...sl", np.asarray(policy, dtype=float), laws)
    ended = np.zeros((*of_state.shape[:-2], 1, of_state.shape[-1]))
    ended[..., 0] = 1.0
    onward = np.concatenate([of_state, ended], axis=-2)
    shifts = outcomes.rewards * (1 if discount == "none" else 2 ** (stage - 1))
    width = laws.shape[-1]
    pieces = np.einsum("...saku,...ul->...sakl", outcomes.probabilities, onward)
    result = np.zeros((*pieces.shape[:-2], width + int(shifts.max())))
    for kind, shift in enumerate(shifts):
        result[..., shift : shift + width] += pieces[..., kind, :]
    return result


def spacing(stages: int, discount: Discount) -> float:
    """Distance of neighbouring returns after so many updates."""
    return 1.0 if discount == "none" else 2.0 ** (1 - stages)


def refined(law: FloatArray, stages: int, more: int) -> FloatArray:
    """A half-discounted law of `stages` updates on the lattice of `more` updates."""
    factor = 2 ** (more - stages)
    result = np.zeros((*law.shape[:-1], (law.shape[-1] - 1) * factor + 1))
    result[..., ::factor] = law
    return result


def same_length(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both padded with zeros to the longer of the two."""
    length = max(first.shape[-1], second.shape[-1])
    padded = [
        np.concatenate([law, np.zeros((*law.shape[:-1], length - law.shape[-1]))], axis=-1)
        for law in (first, second)
    ]
    return padded[0], padded[1]


def lattice_total_variation(first: FloatArray, second: FloatArray) -> FloatArray:
    """TV of laws (..., L)."""
    return 0.5 * np.abs(first - second).sum(axis=-1)


def lattice_wasserstein(
    first: FloatArray, second: FloatArray, spacing: float, order: float = 1.0
) -> FloatArray:
    """W_p of laws (..., L) on one lattice, by coupling equal quantiles."""
    lower, upper = np.cumsum(first, axis=-1), np.cumsum(second, axis=-1)
    if order == 1:
        return np.abs(lower - upper).sum(axis=-1) * spacing
    leading = np.broadcast_shapes(lower.shape, upper.shape)[:-1]
    pairs = zip(
        np.broadcast_to(lower, (*leading, lower.shape[-1])).reshape(-1, lower.shape[-1]),
        np.broadcast_to(upper, (*leading, upper.shape[-1])).reshape(-1, upper.shape[-1]),
        strict=True,
    )
    costs = [_transport(f, g, order) for f, g in pairs]
    return spacing * np.array(costs).reshape(leading) ** (1 / order)


def _transport(lower: FloatArray, upper: FloatArray, order: float) -> float:
    """∫ |F⁻¹ - G⁻¹|^p over levels, in places of the lattice."""
    levels = np.union1d(np.clip(lower, 0, 1), np.clip(upper, 0, 1))
    levels = np.concatenate([[0.0], levels[levels > 0]])
    middles = (levels[1:] + levels[:-1]) / 2
    last = len(lower) - 1
    places = [np.minimum(np.searchsorted(cdf, middles), last) for cdf in (lower, upper)]
    return float(np.diff(levels) @ np.abs(places[0] - places[1]).astype(float) ** order)
