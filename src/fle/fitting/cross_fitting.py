"""Networks of what was done, each fitted without the episodes that it is asked about."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.special import ndtr

from fle.data import Dataset
from fle.data.passes import Array, centre_and_scale, standardised
from fle.fitting.encoding import MOST_ONE_HOT
from fle.fitting.optimiser import Adam, compiler_options
from fle.models.network import Mixture, Network

Device: TypeAlias = jax.Array

# From so many rows on, two folds leave enough for a fit, and batches are larger.
MANY_ROWS = 20_000
FOLDS, FOLDS_OF_MANY = 5, 2
STEPS, BATCH = 600, 256
STEPS_OF_MANY, BATCH_OF_MANY = 900, 512
HIDDEN, COMPONENTS = (64, 64), 3
# Logit of the share of actions that are taken at random, and what keeps logarithms finite.
FIRST_EXPLORATION, TINY = -3.0, 1e-9
WARM_UP, AVERAGED = 0.05, 0.02
# The lighter weight decay, at MANY_ROWS and above; the heavier one is so many times as large.
DECAY, HEAVIER = 0.03, 10.0
# Moments at which a fit may stop, and the rows that choose one, which it does not train on.
MOMENTS, JUDGES, MOST_JUDGES = 10, 0.1, 4_096
# In standard deviations: where inputs end, and the narrowest component.
FURTHEST, NARROWEST = 10.0, 1e-3
# Rows that are asked together: another number would be compiled anew.
BLOCK = 8_192


def dealt_rows(data: Dataset, folds: int | None, seed: int) -> Array:
    """The part (n,) that each row belongs to, with its whole episode."""
    most = folds or (FOLDS_OF_MANY if len(data) >= MANY_ROWS else FOLDS)
    return _dealt(_groups(data), most, np.random.default_rng([seed, 0]))


def _groups(data: Dataset) -> Array:
    """What stays together: episodes; where these are unknown, copies of one row."""
    return data.source_rows if data.episodes is None else data.episodes


def _dealt(groups: Array, most: int, generator: np.random.Generator) -> Array:
    """Parts (n,) numbered from 0, at least two and at most so many, of whole groups."""
    if (np.diff(groups) >= 0).all():
        # Episodes that lie one after the other need no sorting.
        index = np.cumsum(np.append(False, groups[1:] != groups[:-1]))
    else:
        index = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(index)
    if len(sizes) == 1:
        index, sizes = np.arange(len(groups)), np.ones(len(groups), int)
    order = generator.permutation(len(sizes))
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    part_of = np.empty(len(sizes), int)
    part_of[order] = (middles / sizes.sum() * min(most, len(sizes))).astype(int)
    return np.unique(part_of, return_inverse=True)[1][index]


@final
@dataclass(frozen=True)
class Choice:
    """Probabilities of discrete actions, from a network's outputs with rows as the last axis.

    (1 - e) softmax + e/A, where the last output is the logit of e. Logging policies often explore
    at random; a softmax alone would need a cliff of an exact height for that.
    """

    actions: int
    trends = 0
    learning_rate = 1e-2

    def first_outputs(self, actions: Array, generator: np.random.Generator) -> Array:
        """Those of the shares of all actions."""
        counts = np.bincount(actions, minlength=self.actions) + 1
        return np.append(np.log(counts / counts.sum()), FIRST_EXPLORATION)

    def log_probs(self, outputs: Device, actions: Device) -> Device:
        """Of the given actions."""
        chosen = jnp.arange(self.actions)[:, None] == actions
        return jnp.log(jnp.sum(self.answer(outputs, actions) * chosen, axis=0) + TINY)

    def answer(self, outputs: Device, actions: Device) -> Device:
        """The probabilities of all actions."""
        explores = jax.nn.sigmoid(outputs[-1])
        return (1 - explores) * jax.nn.softmax(outputs[:-1], axis=0) + explores / self.actions


@final
@dataclass(frozen=True)
class Blend:
    """A Gaussian mixture of continuous actions as a network's outputs."""

    dim: int
    # Gradients by the means of narrow components are steep and noisy (decision 0012).
    learning_rate = 5e-3

    @property
    def trends(self) -> int:
        """The locations."""
        return self.dim

    def first_outputs(self, actions: Array, generator: np.random.Generator) -> Array:
        """Those of a rough standard normal."""
        return Mixture.first_outputs(COMPONENTS, self.dim, generator)

    def log_probs(self, outputs: Device, actions: Device) -> Device:
        """Log densities of the given actions."""
        mixture = Mixture.of_outputs(outputs, COMPONENTS, self.dim, NARROWEST)
        return mixture.log_density(actions.T)

    def answer(self, outputs: Device, actions: Device) -> Device:
        """The log density, and each coordinate's place in its law given those before it.

        If the law is right, places are independent and uniform (Rosenblatt 1952).
        """
        mixture = Mixture.of_outputs(outputs, COMPONENTS, self.dim, NARROWEST)
        whitened: list[Device] = []
        places, logits = [], mixture.weights
        for i, (means, scales) in enumerate(zip(mixture.means, mixture.diagonal, strict=True)):
            below = mixture.below[i * (i - 1) // 2 : i * (i + 1) // 2]
            shift = sum((entry * value for entry, value in zip(below, whitened, strict=True)), 0.0)
            whitened.append((actions[:, i] - means - shift) / scales)
            places.append(jnp.sum(jax.nn.softmax(logits, axis=0) * ndtr(whitened[-1]), axis=0))
            logits = logits - jnp.log(scales) - 0.5 * whitened[-1] ** 2
        return jnp.stack([mixture.log_density(actions.T), *places])


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Inputs:
    """What networks see of the rows: standardised observations or states by name, and the step
    where the problem has steps. Of many states the code, which is said of the first column.
    """

    data: Dataset
    codes: tuple[tuple[int, int], ...]
    centre: Array
    scale: Array

    @classmethod
    def of(cls, data: Dataset) -> "Inputs":
        """In units of all rows."""
        states = data.number_of_observations
        codes = () if states is None or states <= MOST_ONE_HOT else ((0, states),)
        raw = cls(data=data, codes=codes, centre=np.zeros(0), scale=np.zeros(0))
        columns = raw._columns(slice(None), following=False)
        centre, scale = centre_and_scale(columns)
        return cls(data=data, codes=codes, centre=centre, scale=scale)

    def __call__(self, rows: Any, *, following: bool = False) -> Array:
        """(m, width) Of these rows, or of what follows them."""
        columns = self._columns(rows, following=following)
        inputs = standardised([columns], self.centre, self.scale)
        np.clip(inputs, -FURTHEST, FURTHEST, out=inputs)
        if self.codes:
            inputs[:, 0] = columns[:, 0]
        return inputs

    def _columns(self, rows: Any, *, following: bool) -> Array:
        data, states = self.data, self.data.number_of_observations
        values = (data.next_observations if following else data.observations)[rows]
        if self.codes:
            values = values[:, None]
        elif states is not None:
            values = values[:, None] == np.arange(states)
        if data.steps is None:
            return values
        return np.column_stack([values, data.steps[rows] + int(following)])


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class CrossFitted:
    """One network for each part, fitted to the other parts, and the inputs of all rows."""

    head: Choice | Blend
    networks: tuple[Network, ...]
    parts: Array
    inputs: Inputs
    centres: Array
    scales: Array

    def ask(self, rows: Array, actions: Array, *, following: bool = False) -> Array:
        """The head's answers (m, ...) at m rows, or at what follows them, each by the network that
        judges it, of m actions.
        """
        found: Array | None = None
        for part, places in self._blocks(rows):
            scaled = _scaled(actions[places], self.centres[part], self.scales[part])
            inputs = self.inputs(rows[places], following=following)
            block = [np.resize(a, (BLOCK, *a.shape[1:])) for a in (inputs, scaled)]
            answers = np.asarray(_answers()(self.head, self.networks[part], *block))
            if scaled.ndim == 2:
                # A density in the units of the data.
                answers = answers.astype(np.float64)
                answers[0] -= np.log(self.scales[part]).sum()
            if found is None:
                found = np.empty((len(rows), len(answers)), answers.dtype)
            found[places] = answers.T[: len(places)]
        return np.empty((0, 0)) if found is None else found

    def _blocks(self, rows: Array) -> Iterator[tuple[int, Array]]:
        for part in range(len(self.networks)):
            mine = np.flatnonzero(self.parts[rows] == part)
            for start in range(0, len(mine), BLOCK):
                yield part, mine[start : start + BLOCK]


def cross_fitted(data: Dataset, parts: Array, seed: int, head: Choice | Blend) -> CrossFitted:
    """Fit a network to the rows outside each part; its own held-out episodes say when to stop."""
    inputs = Inputs.of(data)
    many = len(data) >= MANY_ROWS
    steps, batch = (STEPS_OF_MANY, BATCH_OF_MANY) if many else (STEPS, BATCH)
    number = parts.max() + 1
    generators = [np.random.default_rng([seed, 1, part]) for part in range(number)]
    training, judges = [], []
    for part, generator in enumerate(generators):
        others = np.flatnonzero(parts != part)
        judging = _dealt(_groups(data)[others], round(1 / JUDGES), generator) == 0
        training.append(others[~judging])
        judges.append(generator.permutation(others[judging]))
    # One size for all parts, so that one compilation serves them.
    batch = min(batch, *map(len, training))
    size = min(MOST_JUDGES, max(map(len, judges)))
    decay = DECAY * max(1.0, np.sqrt(MANY_ROWS / len(data)))
    # Of very many rows only those that are used are made inputs of.
    everything = inputs(slice(None)) if len(data) <= steps * batch + size else None
    progress = (np.arange(steps) + 0.5) / steps
    rates = head.learning_rate * np.minimum(1, progress / WARM_UP) * np.cos(np.pi / 2 * progress)
    networks, frames = [], []
    for rows, judging, generator in zip(training, judges, generators, strict=True):
        frame = _frame(data.actions[rows])
        passes = -(-steps * batch // len(rows))
        order = np.concatenate([generator.permutation(rows) for _ in range(passes)])
        start = Network(
            len(inputs.centre),
            HIDDEN,
            head.first_outputs(_scaled(data.actions[rows], *frame), generator),
            generator,
            trends=head.trends,
            codes=inputs.codes,
        )
        used = np.concatenate([order[: steps * batch], np.resize(judging, size)])
        seen, places = everything, used
        if seen is None:
            seen, places = inputs(used), np.arange(len(used))
        actions = _scaled(data.actions if everything is not None else data.actions[used], *frame)
        batches = places[:-size].reshape(MOMENTS, -1, batch)
        schedule = batches, rates.reshape(MOMENTS, -1).astype(np.float32)
        sides = places[-size:]
        best, least = start, np.inf
        for weight in (decay, HEAVIER * decay):
            given = seen, actions, schedule, sides, np.float32(weight)
            network, loss = _training()(head, start, *given)
            # Read at once, so that fits do not run beside each other.
            if float(loss) < least:
                best, least = network, float(loss)
        networks.append(best)
        frames.append(frame)
    centres, scales = (np.stack(values) for values in zip(*frames, strict=True))
    return CrossFitted(
        head=head,
        networks=tuple(networks),
        parts=parts,
        inputs=inputs,
        centres=centres,
        scales=scales,
    )


def _frame(actions: Array) -> tuple[Array, Array]:
    if actions.ndim == 1:
        return np.zeros(0), np.ones(0)
    return centre_and_scale(actions)


def _scaled(values: Array, centre: Array, scale: Array) -> Array:
    """Codes as they are, vectors standardised."""
    if values.ndim == 1:
        return values.astype(np.int32)
    return standardised([values], centre, scale)


@cache
def _answers() -> Any:
    return eqx.filter_jit(
        lambda head, network, inputs, actions: head.answer(network.columns(inputs), actions)
    )


@cache
def _training() -> Any:
    """Compiled for one thread, as in decision 0008."""
    jit: Any = eqx.filter_jit
    return jit(_trained, compiler_options=compiler_options(shared=False))


def _trained(
    head: Choice | Blend,
    network: Network,
    inputs: Device,
    actions: Device,
    schedule: tuple[Device, Device],
    judges: Device,
    decay: Device,
) -> tuple[Network, Device]:
    """The network at the moment that suits the judging rows best, and its loss there."""
    start, rebuild = ravel_pytree(network)
    kinds = jax.tree.map(lambda leaf: jnp.full(leaf.shape, float(leaf.ndim > 1)), network)
    decays = decay * ravel_pytree(kinds)[0]

    def loss(parameters: Device, rows: Device) -> Device:
        outputs = rebuild(parameters).columns(inputs[rows])
        return -jnp.mean(head.log_probs(outputs, actions[rows]))

    def step(state: Any, given: Any) -> tuple[Any, None]:
        (parameters, average, adam), (rows, rate) = state, given
        gradient = jax.grad(loss)(parameters, rows)
        direction, adam = adam.step(gradient)
        parameters = parameters - rate * (direction + decays * parameters)
        average = average + AVERAGED * (parameters - average)
        return (parameters, average, adam), None

    def moment(state: Any, given: Any) -> tuple[Any, Any]:
        state, _ = jax.lax.scan(step, state, given)
        return state, (state[1], loss(state[1], judges))

    first = (start, start, Adam.of(start))
    _, (averages, losses) = jax.lax.scan(moment, first, schedule)
    best = jnp.argmin(losses)
    return rebuild(averages[best]), losses[best]
