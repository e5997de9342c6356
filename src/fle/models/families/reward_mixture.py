"""The paper's Bellman-complete tabular class: mixtures of known reward laws, learned weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fle.errors import ModelError, SettingsError
from fle.models.law import Density, Sizes, pick, placed
from fle.models.objectives import ClosedForm, Transition
from fle.models.specs import ModelSpec, Moments, identity_frame, require_scalar
from fle.recipe import Resolved


class RewardMixtureLaw(Density):
    """p(z | x, a) = sum_k w_k(x, a) law_k(z), a table of weights over known laws."""

    weights: Float[Array, "states actions laws"]
    laws: tuple[Any, ...] = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number picks the law, one draws from it."""
        return 2

    def mixture(self, inputs: Float[Array, " inputs"]) -> Float[Array, " laws"]:
        """Weights at one input: a one-hot state joined with a one-hot action."""
        state, action = jnp.split(inputs, [self.weights.shape[0]])
        return jnp.einsum("s,a,sak->k", state, action, self.weights)

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density of one return."""
        densities = self._over_laws(returns[0], "pdf")
        return jnp.log(self.mixture(inputs) @ densities)

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " laws"]:
        """The weights are all that varies."""
        return self.mixture(inputs)

    def draw(
        self, conditioned: Float[Array, " laws"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """Pick a law, then invert its distribution function."""
        return self._over_laws(uniforms[1], "ppf")[pick(jnp.cumsum(conditioned), uniforms[0])][None]

    def _over_laws(self, value: Float[Array, ""], method: str) -> Float[Array, " laws"]:
        """A SciPy method of every law, called back from compiled code."""
        shape = jax.ShapeDtypeStruct((len(self.laws),), jnp.float32)
        return jax.pure_callback(
            lambda v: evaluate_laws(self.laws, method, v), shape, value, vmap_method="expand_dims"
        )


class ExpectationMaximisation(ClosedForm):
    """The weights that maximise the (concave) likelihood.

    Rewards come only where an episode ends, so a target is either a reward, of unknown law, or a
    draw from the previous mixture, of known law. The first kind is fitted by EM; the second
    contributes its expected counts, and nothing is sampled.
    """

    def solve(
        self,
        law: RewardMixtureLaw,
        previous: RewardMixtureLaw,
        transitions: Transition,
        weights: Float[Array, " rows"],
    ) -> RewardMixtureLaw:
        """EM over the rows that end, expected counts for the rows that go on."""
        discount, reward = (
            np.asarray(values)[:, 0] for values in (transitions.discount, transitions.reward)
        )
        ends = discount == 0
        _require_sparse(discount, reward)
        states, actions, laws = law.weights.shape
        # NumPy, as each operation on arrays of JAX would be compiled on its own.
        inputs, used = np.asarray(transitions.inputs), np.asarray(weights)
        cell = inputs[:, :states].argmax(axis=1) * actions + inputs[:, states:].argmax(axis=1)
        going_on = placed(np.where(ends, 0, used))
        carried = np.asarray(_carried_counts(previous, transitions, going_on))
        counts = [np.bincount(cell, column, states * actions) for column in carried.T]
        # Filled up to a power of two with rows of weight zero: every stage has another number of
        # ends, and each number would be compiled anew.
        ended = np.flatnonzero(ends & (used > 0))
        filled = np.resize(ended, 1 << (ended.size - 1).bit_length() if ended.size else 1)
        filling = np.arange(filled.size) >= ended.size
        density = evaluate_laws(law.laws, "pdf", reward[filled])
        table = _expectation_maximisation(
            placed(np.stack(counts, axis=1)),
            placed(density),
            placed(cell[filled].astype(np.int32)),
            placed(np.where(filling, 0, used[filled])),
        )
        return type(law)(table.reshape(states, actions, laws), law.laws)


def evaluate_laws(laws: Sequence[Any], method: str, value: Any) -> np.ndarray:
    """`law.method(value)` for every law, on a new last axis."""
    columns = [getattr(law, method)(np.asarray(value)) for law in laws]
    return np.stack(columns, axis=-1).astype(np.float32)


def _require_sparse(discount: np.ndarray, reward: np.ndarray) -> None:
    goes_on = discount > 0
    if np.any(discount[goes_on] != 1):
        raise ModelError(
            "RewardMixture is closed under undiscounted updates only, and the discount here is "
            f"{discount[goes_on].min():g}. Give a horizon with gamma = 1, or use another model."
        )
    paid = np.flatnonzero(goes_on & (reward != 0))
    if paid.size:
        raise ModelError(
            "RewardMixture needs rewards that come only at the end: row "
            f"{paid[0]} of a stage goes on and has reward {reward[paid[0]]:g} (expected 0). Give "
            "`steps` so that each row is used at its own step, or use another model."
        )


@jax.jit
def _carried_counts(
    previous: RewardMixtureLaw, transitions: Transition, weights: Float[Array, " rows"]
) -> Float[Array, "rows laws"]:
    def expected(transition: Transition) -> Float[Array, " laws"]:
        return transition.probabilities @ transition.at_candidates(previous.mixture)

    return jax.vmap(expected)(transitions) * weights[:, None]


@jax.jit
def _expectation_maximisation(
    counts: Float[Array, "cells laws"],
    density: Float[Array, "rows laws"],
    cell: Float[Array, " rows"],
    row_weights: Float[Array, " rows"],
    tolerance: float = 1e-6,
    most: int = 5000,
) -> Float[Array, "cells laws"]:
    """Weights that maximise the (concave) likelihood; cells without data stay uniform."""
    cells, laws = counts.shape
    start = jnp.full((cells, laws), 1 / laws)

    def update(table: Float[Array, "cells laws"]) -> Float[Array, "cells laws"]:
        joint = table[cell] * density
        share = joint / jnp.maximum(joint.sum(axis=1, keepdims=True), 1e-30)
        total = counts + jax.ops.segment_sum(share * row_weights[:, None], cell, cells)
        mass = total.sum(axis=1, keepdims=True)
        return jnp.where(mass > 0, total / jnp.maximum(mass, 1e-30), start)

    def unfinished(state: tuple[Any, ...]) -> Any:
        _, change, count = state
        return (change > tolerance) & (count < most)

    def advance(state: tuple[Any, ...]) -> tuple[Any, ...]:
        table, _, count = state
        new = update(table)
        return new, jnp.max(jnp.abs(new - table)), count + 1

    return jax.lax.while_loop(unfinished, advance, (start, jnp.inf, 0))[0]


@dataclass(frozen=True)
class RewardMixture(ModelSpec):
    """Tabular problems with a reward at the end only: a mixture of known reward laws.

    p(z | x, a) = sum_k w_k(x, a) p_k(z), a table of weights (Wu, Uehara & Sun 2023).

    laws: frozen SciPy distributions with `pdf` and `ppf`.

    Example: `fle.RewardMixture((scipy.stats.norm(0, 1), scipy.stats.norm(3, 1)))`.
    """

    laws: tuple[Any, ...]

    name: ClassVar[str] = "reward-mixture"
    standardised: ClassVar[bool] = False
    any_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.laws:
            raise SettingsError("RewardMixture needs at least one reward law, got none.")

    def build(
        self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator
    ) -> RewardMixtureLaw:
        """Equal weights everywhere."""
        require_scalar("RewardMixture", sizes.returns)
        if not (sizes.discrete_observations and sizes.discrete_actions):
            raise ModelError(
                "RewardMixture is tabular: it needs observations given as a 1-d array of integer "
                "states, and discrete actions. Use GMM otherwise."
            )
        shape = (sizes.observation, sizes.action, len(self.laws))
        return RewardMixtureLaw(placed(np.full(shape, 1 / len(self.laws))), tuple(self.laws))

    def objective(self, recipe: Resolved) -> ExpectationMaximisation:
        """Expectation maximisation."""
        return ExpectationMaximisation()

    def frame(self, samples: np.ndarray) -> Moments:
        """The units of the data."""
        return identity_frame(samples)
