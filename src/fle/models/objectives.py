"""How a law is fitted to its Bellman targets: objectives, composed with laws.

An objective says what a row's target is, given the previous fit, and what the loss against it is.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fle.models.law import Density, Law, over_draws, pick, shifted_lattice
from fle.models.support import Support

# Draws that a row gets when they are made beforehand.
POOL = 32


class Transition(NamedTuple):
    """One logged row, encoded: reward and discount are in the law's units.

    `discount` is 0 where the row terminated. The candidates are the actions the target policy may
    take at the next observation. `support`, where given, is that of the next return. `noise` holds
    as many uniform numbers as the objective asks for by its `prepare_noise_size`.
    """

    inputs: Float[Array, " inputs"]
    reward: Float[Array, " d"]
    discount: Float[Array, " d"]
    next_observation: Float[Array, " observation"]
    next_actions: Float[Array, "candidates action"]
    probabilities: Float[Array, " candidates"]
    support: Support | None = None
    noise: Float[Array, " noise"] | tuple[()] = ()

    def at_candidates(self, function: Callable[[Float[Array, " inputs"]], Any]) -> Any:
        """The function at the next observation joined with every candidate action."""
        width = self.next_observation.shape[0]
        repeated = jnp.broadcast_to(self.next_observation, (self.next_actions.shape[0], width))
        return jax.vmap(function)(jnp.concatenate([repeated, self.next_actions], axis=1))

    def thinned(self, level: Float[Array, ""], number: int) -> "Transition":
        """`number` candidates drawn by their probabilities, evenly spaced from a random level."""
        levels = (level + jnp.arange(number)) / number
        picks = pick(jnp.cumsum(self.probabilities), levels)
        return self._replace(
            next_actions=self.next_actions[picks], probabilities=jnp.full(number, 1 / number)
        )


class StageFit(Protocol):
    """What the loop lends an objective to fit one stage with."""

    @property
    def law(self) -> Law:
        """The law to begin with."""

    @property
    def previous(self) -> Law:
        """The law that next returns are drawn from."""

    def minimise(self, objective: "GradientObjective") -> Any:
        """Train the law by stochastic gradients of the objective's loss."""

    def solved(self, law: Law) -> Any:
        """Hand in a law that was fitted at once."""

    def transitions(self) -> Transition:
        """All rows of the stage, on a leading axis."""

    def weights(self) -> Float[Array, " rows"]:
        """Their weights; rows that only fill up have weight 0."""


class Objective(eqx.Module):
    """How a law is fitted to the targets of a stage."""

    @property
    @abstractmethod
    def measured_by(self) -> "GradientObjective":
        """Whose loss tells, on held-out rows, how good a fit is."""

    @abstractmethod
    def fit(self, stage: StageFit) -> Any:
        """Fit one stage with what the loop lends."""


class GradientObjective(Objective):
    """A loss against Bellman targets, minimised by stochastic gradients.

    A target has two parts: `prepare` does what is the same each time a row is used, and `target`
    adds what is random. Both depend on the previous law alone; `law` is asked for its sizes.

    in_nats: whether the loss is a negative log density, which a change of units shifts.
    """

    in_nats: ClassVar[bool] = False

    @property
    def measured_by(self) -> "GradientObjective":
        """Its own loss."""
        return self

    def fit(self, stage: StageFit) -> Any:
        """Train by gradients."""
        return stage.minimise(self)

    def across_fits(self) -> "GradientObjective | None":
        """The same for rows that ask different fits, of which only `prepare` sees the right one.

        None where `target` needs the previous law too, and nothing replaces it.
        """
        exact = type(self).target is GradientObjective.target
        return self if exact else None

    def target_noise_size(self, law: Any) -> int:
        """How many uniform numbers `target` consumes; 0 where the target is exact."""
        return 0

    def prepare_noise_size(self, law: Any) -> int:
        """How many uniform numbers `prepare` finds in `transition.noise`."""
        return 0

    @abstractmethod
    def prepare(self, law: Any, previous: Any, transition: Transition) -> Any:
        """What is known of r + discount * y before anything is drawn, y from `previous`.

        Between uses it is kept in float32, which holds whole numbers up to 2^24.
        """

    def target(
        self,
        law: Any,
        previous: Any,
        prepared: Any,
        uniforms: Float[Array, " noise"],
        draws: int,
        support: Support | None = None,
    ) -> Any:
        """What the loss is measured against; an exact target is what was prepared.

        support: where the next return can lie, if `previous` is drawn from here.
        """
        return prepared

    def blurred(self, targets: Any, support: Support, key: PRNGKeyArray) -> Any:
        """The targets of a batch with their atoms blurred; as they are, where nothing is gained."""
        return targets

    @abstractmethod
    def loss(self, law: Any, inputs: Float[Array, "rows inputs"], targets: Any) -> Float[Array, ""]:
        """The mean loss of a batch against its targets."""


class NextLaws(NamedTuple):
    """The distributions of the next return, one a candidate action, and the update to apply."""

    conditioned: Any
    probabilities: Float[Array, " candidates"]
    reward: Float[Array, " d"]
    discount: Float[Array, " d"]


def next_laws(previous: Law, transition: Transition) -> NextLaws:
    """The distributions that the previous law has at all candidate next actions of one row."""
    return NextLaws(
        transition.at_candidates(previous.condition),
        transition.probabilities,
        transition.reward,
        transition.discount,
    )


def draw_updates(
    law: Law,
    prepared: NextLaws,
    uniforms: Float[Array, " noise"],
    draws: int,
    support: Support | None = None,
) -> Float[Array, "draws d"]:
    """Draws of r + discount * y for one row.

    The draws form a lattice, shifted at random: each of them is distributed as it should be, and
    together they cover the actions and the noise evenly, so few of them go a long way. What a law
    says outside the support is impossible, and would come back at every stage.
    """
    points = shifted_lattice(uniforms, draws)
    if prepared.probabilities.shape[0] == 1:
        only = jax.tree.map(lambda a: a[0], prepared.conditioned)
        returns = jax.vmap(lambda u: law.draw(only, u))(points[:, 1:])
    else:
        picks = pick_actions(prepared, points)
        chosen = jax.tree.map(lambda a: a[picks], prepared.conditioned)
        returns = jax.vmap(law.draw)(chosen, points[:, 1:])
    if support is not None:
        returns = support.project(returns)
    return prepared.reward + prepared.discount * returns


def pick_actions(prepared: NextLaws, points: Float[Array, "points noise"]) -> Int[Array, " points"]:
    """Which candidate action each point draws its return from."""
    return pick(jnp.cumsum(prepared.probabilities), points[:, 0])


def plain_log_probs(law: Density, inputs: Array, returns: Array) -> Float[Array, "..."]:
    """The log densities as the law has them."""
    return law.log_probs(inputs, returns)


class Likelihood(GradientObjective):
    """Maximum likelihood of draws r + discount * y with a' ~ policy and y ~ previous(x', a').

    blur: standard deviation of the noise added to every draw, in units of the return scale, for
        laws that have no least width of their own.
    edge: draws beyond [-edge, edge] are moved there, for laws that end there.
    log_probs: log densities of the same values as the law's own, whose gradients may be others.
    """

    in_nats: ClassVar[bool] = True

    blur: float = eqx.field(static=True, default=0.0)
    edge: float | None = eqx.field(static=True, default=None)
    log_probs: Any = eqx.field(static=True, default=plain_log_probs)

    def target_noise_size(self, law: Law) -> int:
        """One number picks the action, others draw the return; the blur has numbers of its own."""
        return 1 + law.noise_size + self._blurred(law)

    def prepare(self, law: Law, previous: Law, transition: Transition) -> NextLaws:
        """The previous law at all candidate next actions."""
        return next_laws(previous, transition)

    def target(
        self,
        law: Law,
        previous: Law,
        prepared: NextLaws,
        uniforms: Float[Array, " noise"],
        draws: int,
        support: Support | None = None,
    ) -> Float[Array, "draws d"]:
        """Draws of r + discount * y."""
        blur, uniforms = jnp.split(uniforms, [self._blurred(law)])
        returns = draw_updates(previous, prepared, uniforms, draws, support)
        if self.blur > 0:
            returns = returns + self.blur * ndtri(shifted_lattice(blur, draws))
        return returns if self.edge is None else jnp.clip(returns, -self.edge, self.edge)

    def loss(
        self,
        law: Density,
        inputs: Float[Array, "rows inputs"],
        targets: Float[Array, "rows draws d"],
    ) -> Float[Array, ""]:
        """Negative log likelihood, averaged over rows and draws."""
        return -jnp.mean(self.log_probs(law, inputs, targets))

    def across_fits(self) -> "DrawnBefore":
        """Draws that are made beforehand."""
        return DrawnBefore(self)

    def blurred(
        self, targets: Float[Array, "rows draws d"], support: Support, key: PRNGKeyArray
    ) -> Float[Array, "rows draws d"]:
        """Atoms as narrow peaks, which a density can have."""

        def peaks() -> Float[Array, "rows draws d"]:
            blurred = support.blurred(targets, jax.random.normal(key, targets.shape))
            return blurred if self.edge is None else jnp.clip(blurred, -self.edge, self.edge)

        return jax.lax.cond(support.has_atoms, peaks, lambda: targets)

    def _blurred(self, law: Any) -> int:
        return law.return_dim if self.blur > 0 else 0


class DrawnBefore(GradientObjective):
    """A likelihood whose targets are picked from draws that were made when a row was prepared.

    likelihood: of what.
    pool: draws a row gets.
    """

    in_nats: ClassVar[bool] = True
    likelihood: Likelihood
    pool: int = eqx.field(static=True, default=POOL)

    def across_fits(self) -> "DrawnBefore":
        """As it is."""
        return self

    def prepare_noise_size(self, law: Law) -> int:
        """As many as the draws of a target consume."""
        return self.likelihood.target_noise_size(law)

    def target_noise_size(self, law: Law) -> int:
        """One number picks from the pool."""
        return 1

    def prepare(self, law: Law, previous: Law, transition: Transition) -> Float[Array, "pool d"]:
        """Draws of r + discount * y."""
        laws, noise = next_laws(previous, transition), jnp.asarray(transition.noise)
        return self.likelihood.target(law, previous, laws, noise, self.pool, transition.support)

    def target(
        self,
        law: Law,
        previous: Law,
        prepared: Float[Array, "pool d"],
        uniforms: Float[Array, " noise"],
        draws: int,
        support: Support | None = None,
    ) -> Float[Array, "draws d"]:
        """Some of the draws, evenly spread."""
        return prepared[
            pick(jnp.arange(1.0, self.pool + 1), shifted_lattice(uniforms, draws)[:, 0])
        ]

    def blurred(
        self, targets: Float[Array, "rows draws d"], support: Support, key: PRNGKeyArray
    ) -> Float[Array, "rows draws d"]:
        """As of the likelihood."""
        return self.likelihood.blurred(targets, support, key)

    def loss(
        self,
        law: Density,
        inputs: Float[Array, "rows inputs"],
        targets: Float[Array, "rows draws d"],
    ) -> Float[Array, ""]:
        """That of the likelihood."""
        return self.likelihood.loss(law, inputs, targets)


class EnergyTargets(NamedTuple):
    """Draws of a row's target, and uniform numbers for two sets of the law's own draws."""

    returns: Float[Array, "draws d"]
    first: Float[Array, " noise"]
    second: Float[Array, " noise"]


class EnergyDistance(GradientObjective):
    """The energy distance to the targets, for any law that can be sampled.

    With X, X' independent draws of the law and z a target r + discount * y, the loss

        2 E|X - z| - E|X - X'|

    is least where the law is that of z (Székely & Rizzo 2013), whatever its density, and whether it
    has one. |.| is the Euclidean norm, so that vector returns need nothing else. X and X' come from
    two lattices with shifts of their own: every pair of them is independent.

    targets: how z is drawn.
    points: of each lattice.
    """

    targets: Likelihood | DrawnBefore = Likelihood()
    points: int = eqx.field(static=True, default=4)

    def across_fits(self) -> "EnergyDistance":
        """Targets that are drawn beforehand."""
        return EnergyDistance(self.targets.across_fits(), self.points)

    def prepare_noise_size(self, law: Law) -> int:
        """As the targets say."""
        return self.targets.prepare_noise_size(law)

    def target_noise_size(self, law: Law) -> int:
        """What the targets consume, and a shift for each of both lattices."""
        return self.targets.target_noise_size(law) + 2 * law.noise_size

    def prepare(self, law: Law, previous: Law, transition: Transition) -> Any:
        """As the targets say."""
        return self.targets.prepare(law, previous, transition)

    def target(
        self,
        law: Law,
        previous: Law,
        prepared: Any,
        uniforms: Float[Array, " noise"],
        draws: int,
        support: Support | None = None,
    ) -> EnergyTargets:
        """Draws of r + discount * y, and the shifts."""
        size = self.targets.target_noise_size(law)
        own, first, second = jnp.split(uniforms, [size, size + law.noise_size])
        returns = self.targets.target(law, previous, prepared, own, draws, support)
        return EnergyTargets(returns, first, second)

    def loss(
        self, law: Law, inputs: Float[Array, "rows inputs"], targets: EnergyTargets
    ) -> Float[Array, ""]:
        """The energy distance less E|z - z'|, averaged over rows."""

        def one(x: Float[Array, " inputs"], target: EnergyTargets) -> Float[Array, ""]:
            known = law.condition(x)
            (some, weights), (others, other_weights) = (
                law.weighted_draws(known, shifted_lattice(shift, self.points))
                for shift in (target.first, target.second)
            )
            away = weights @ _distances(some, target.returns)
            also_away = other_weights @ _distances(others, target.returns)
            apart = weights @ _distances(some, others) @ other_weights
            return jnp.mean(away + also_away) - apart

        return jnp.mean(jax.vmap(one)(inputs, targets))


def _distances(first: Float[Array, "n d"], second: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Euclidean, with a gradient where two points meet."""
    squares = jnp.sum((first[:, None] - second[None]) ** 2, axis=2)
    return jnp.sqrt(squares + 1e-12)


class ClosedForm(Objective):
    """A fit that is computed at once, in closed form or by a convex solve."""

    @property
    def measured_by(self) -> GradientObjective:
        """The likelihood of drawn targets."""
        return Likelihood()

    def fit(self, stage: StageFit) -> Any:
        """Solve, outside compiled code, so that the data can be looked at and refused."""
        solution = self.solve(stage.law, stage.previous, stage.transitions(), stage.weights())
        return stage.solved(solution)

    @abstractmethod
    def solve(
        self, law: Any, previous: Any, transitions: Transition, weights: Float[Array, " rows"]
    ) -> Any:
        """The maximum-likelihood fit to the Bellman targets of all rows (leading axis: rows)."""


class Pool(NamedTuple):
    """Draws of r + discount * y of one row, and the candidate that each y was drawn at."""

    returns: Float[Array, "pool d"]
    choices: Int[Array, " pool"]
    update: NextLaws


class Denoising(GradientObjective):
    """Recover returns behind noise, for laws that are sampled by removing it (see `Denoiser`).

    They are costly to sample: each row gets a few draws of its target a stage. At each use of a
    row, draws are picked from that pool and disturbed afresh.

    pool: target draws a row gets in each stage.
    """

    pool: int = eqx.field(static=True)

    def prepare_noise_size(self, law: Law) -> int:
        """One number picks the actions, the rest draw the returns."""
        return 1 + law.noise_size

    def target_noise_size(self, law: Any) -> int:
        """One number picks from the pool, one a level of noise, d make the noise."""
        return 2 + law.return_dim

    def prepare(self, law: Law, previous: Law, transition: Transition) -> Pool:
        """Draws of r + discount * y with a' ~ policy and y ~ previous(x', a')."""
        update = next_laws(previous, transition)
        noise = jnp.asarray(transition.noise)
        choices = pick_actions(update, shifted_lattice(noise, self.pool))
        returns = draw_updates(previous, update, noise, self.pool, transition.support)
        return Pool(returns, choices, update)

    def target(
        self,
        law: Any,
        previous: Any,
        prepared: Pool,
        uniforms: Float[Array, " noise"],
        draws: int,
        support: Support | None = None,
    ) -> Any:
        """Some of the pool, with noise of its own for each."""
        points = shifted_lattice(uniforms, draws)
        places = pick(jnp.arange(1.0, self.pool + 1), points[:, 0])
        contexts = jax.tree.map(lambda a: a[prepared.choices[places]], prepared.update.conditioned)

        def disturb(returns: Array, context: Any, uniforms: Array) -> Any:
            return law.disturbed(previous, prepared.update, returns, context, uniforms)

        return jax.vmap(disturb)(prepared.returns[places], contexts, points[:, 1:])

    def loss(self, law: Any, inputs: Float[Array, "rows inputs"], targets: Any) -> Float[Array, ""]:
        """Squared error of what was recovered, averaged over rows and draws."""
        return jnp.mean(over_draws(law.condition, law.denoising_loss, inputs, targets))
