"""Networks and what they give: Gaussian mixtures, and a return one coordinate after the other."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int
from scipy.special import ndtri as normal_quantile

from fle.models.law import Density, Sizes, cumulative_weights, over_draws, pick, placed

# Inputs are standardised. Where one is further out than this, its square would run away.
FURTHEST = 4.0
FREQUENCIES = (1.0, 2.0, 4.0)


class Categories(eqx.Module):
    """The first layer of a network for a code: a row of weights, a gate and a trend for each value.

    It does what a one-hot vector would, and looks up what that would multiply by one.
    """

    gates: Float[Array, "categories 1"]
    weights: Float[Array, "categories hidden"]
    linear: Float[Array, "categories trends"]
    column: int = eqx.field(static=True)

    def project(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows hidden"]:
        """What is added to the first layer's sums."""
        code = self._codes(inputs)
        return self.gates[code] * self.weights[code]

    def trend(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows trends"]:
        """What is added to the first outputs."""
        code = self._codes(inputs)
        return self.gates[code] * self.linear[code]

    def _codes(self, inputs: Float[Array, "*rows inputs"]) -> Int[Array, "*rows"]:
        return inputs[..., self.column].astype(jnp.int32)


class Network(eqx.Module):
    """A multilayer perceptron with SiLU activations beside a quadratic trend, for one example.

    The last layer starts near zero, so that a fresh model is described by `output_bias` alone.
    Every input passes a gate. As gates decay like weights do, an input that carries nothing but
    noise loses both, far sooner than it would lose its weights alone.

    The first `trends` outputs, which should be locations, get a polynomial of degree two of the
    gated inputs added. Decay bends it far less than it bends a chain of layers, so that it draws
    these outputs to a smooth function of the input and not to a constant.

    Columns of the inputs that are codes of many categories are looked up. Their trend is linear.
    """

    gates: Float[Array, "1 inputs"]
    weights: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, "..."], ...]
    linear: Float[Array, "1 terms"]
    quadratic: Float[Array, "inputs terms"]
    categories: tuple[Categories, ...]

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        output_bias: np.ndarray,
        generator: np.random.Generator,
        *,
        trends: int = 0,
        codes: Sequence[tuple[int, int]] = (),
    ):
        """Of inputs of this width; `codes` says which columns are codes, and of how many."""
        sizes = np.ones(inputs, int)
        for column, number in codes:
            sizes[column] = number
        widths = [int(sizes.sum()), *hidden, output_bias.size]
        gains = [2.0] * len(hidden) + [0.01]
        first, *others = (
            (generator.standard_normal((fan_in, fan_out)) * np.sqrt(gain / fan_in)).astype("f4")
            for fan_in, fan_out, gain in zip(widths[:-1], widths[1:], gains, strict=True)
        )
        starts = np.cumsum(sizes) - sizes
        self.categories = tuple(
            Categories(
                placed(np.ones((number, 1))),
                placed(first[starts[column] : starts[column] + number]),
                placed(np.zeros((number, trends))),
                column,
            )
            for column, number in codes
        )
        numbers = [place for place in range(inputs) if place not in dict(codes)]
        first, inputs = first[starts[numbers]], len(numbers)
        self.gates = placed(np.ones((1, inputs)))
        self.weights = tuple(placed(weight) for weight in (first, *others))
        biases = [np.zeros(width) for width in hidden]
        self.biases = tuple(placed(bias) for bias in (*biases, output_bias))
        self.linear = placed(np.zeros((1, inputs * trends)))
        self.quadratic = placed(np.zeros((inputs, inputs * trends)))

    def __call__(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """The outputs for one input vector."""
        outputs, trend = self.finish(self.project(inputs)), self.trend(inputs)
        return outputs + jnp.pad(trend, (0, outputs.size - trend.size))

    def columns(self, inputs: Float[Array, "rows inputs"]) -> Float[Array, "outputs rows"]:
        """The outputs for a batch, a column for each row.

        What a model does with each output is then a loop over rows, which are many, and fast.
        """
        weights = (self.gates.T * self.weights[0], *self.weights[1:])
        values, biases = self._numbers(inputs), (self._offsets(inputs), *self.biases[1:])
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            values = jax.nn.silu(values @ weight + bias)
        outputs = (values @ weights[-1] + biases[-1]).T
        trend = jax.vmap(self.trend)(inputs).T
        return outputs.at[: trend.shape[0]].add(trend)

    def project(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """The first layer's sums, to which other terms may be added before `finish`.

        Gates act on weights: the same as on inputs, and less to do for a batch.
        """
        numbers, offsets = self._numbers(inputs), self._offsets(inputs)
        return numbers @ (self.gates.T * self.weights[0]) + offsets

    def finish(self, sums: Float[Array, " hidden"]) -> Float[Array, " outputs"]:
        """The outputs from the first layer's sums, without the trend."""
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            sums = jax.nn.silu(sums) @ weight + bias
        return sums

    def trend(self, inputs: Float[Array, " inputs"]) -> Float[Array, " trends"]:
        """What is added to the first outputs."""
        looked_up = [part.trend(inputs) for part in self.categories]
        near = jnp.clip(self._numbers(inputs), -FURTHEST, FURTHEST)
        if near.size == 0:
            return jnp.sum(jnp.stack(looked_up), axis=0)
        gates = jnp.tile(self.gates, self.linear.size // near.size)
        rates = (gates * self.linear)[0] + near @ (self.gates.T * self.quadratic * gates)
        return sum(looked_up, jnp.sum(rates.reshape(-1, near.size) * near, axis=1))

    def _numbers(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows numbers"]:
        """The columns that are no codes."""
        if not self.categories:
            return inputs
        codes = [part.column for part in self.categories]
        return inputs[..., np.setdiff1d(np.arange(inputs.shape[-1]), codes)]

    def _offsets(self, inputs: Float[Array, "*rows inputs"]) -> Float[Array, "*rows hidden"]:
        """What codes and biases add to the first layer's sums."""
        return sum((part.project(inputs) for part in self.categories), self.biases[0])


def fourier_features(
    values: Float[Array, " k"], frequencies: Sequence[float]
) -> Float[Array, " features"]:
    """The values, and waves of them: a network then sees fine and coarse changes alike."""
    angles = jnp.concatenate([frequency * values for frequency in frequencies])
    return jnp.concatenate([values, jnp.sin(angles), jnp.cos(angles)])


class Mixture(NamedTuple):
    """Component weights, as logarithms or cumulated; for each coordinate the components' means and
    entries on the diagonal of their Cholesky factors; the entries below it.

    Components are the first axis of every array. Rows of a batch are the last, if there is one:
    loops over them are long and fast.
    """

    weights: Float[Array, "k ..."]
    means: tuple[Float[Array, "k ..."], ...]
    diagonal: tuple[Float[Array, "k ..."], ...]
    below: tuple[Float[Array, "k ..."], ...]

    @classmethod
    def of_outputs(
        cls, outputs: Float[Array, "outputs ..."], components: int, dim: int, floor: float
    ) -> "Mixture":
        """From a network's outputs: a location and a scale of all components for each coordinate,
        logits, and what each component differs by.

        The diagonal is at least `floor`, so that a point mass becomes a narrow peak instead of an
        infinite density.
        """
        k, d = components, dim
        entries = d * (d - 1) // 2
        location, spread, logits, offsets, diagonal, below = parts(
            outputs, (d, d, k, k * d, k * d, k * entries)
        )
        return cls(
            logits - jax.nn.logsumexp(logits, axis=0),
            tuple(location[i] + offsets[i::d] for i in range(d)),
            tuple(floor + jax.nn.softplus(spread[i] + diagonal[i::d]) for i in range(d)),
            tuple(below[i::entries] for i in range(entries)),
        )

    @staticmethod
    def first_outputs(components: int, dim: int, generator: np.random.Generator) -> np.ndarray:
        """Outputs that make a rough standard normal."""
        k, d = components, dim
        spread_out = normal_quantile((np.arange(k) + 0.5) / k)
        means = spread_out if d == 1 else generator.standard_normal(k * d)
        rest = np.zeros(k * d + k * d * (d - 1) // 2)
        return np.concatenate([np.zeros(2 * d + k), means, rest])

    def log_density(self, returns: Float[Array, "d ..."]) -> Float[Array, "..."]:
        """log sum_k w_k N(z; mu_k, L_k L_k^T), with weights as logarithms.

        The triangular solve is unrolled, as d is small.
        """
        d = len(self.means)
        whitened: list[Float[Array, "k ..."]] = []
        for i in range(d):
            residual = returns[i] - self.means[i]
            for j, value in enumerate(whitened):
                residual = residual - self.below[_entry(i, j)] * value
            whitened.append(residual / self.diagonal[i])
        exponent = sum(value**2 for value in whitened)
        heights = self.weights - sum(jnp.log(scales) for scales in self.diagonal)
        return jax.nn.logsumexp(heights - 0.5 * exponent, axis=0) - 0.5 * d * np.log(2 * np.pi)

    def cumulated(self) -> "Mixture":
        """With cumulated weights, as `draw` needs them."""
        return self._replace(weights=cumulative_weights(self.weights))

    def draw(self, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """Pick a component by the first number, then draw from it."""
        component = pick(self.weights, uniforms[0])
        normal = ndtri(uniforms[1:])
        returns = []
        for i in range(len(self.means)):
            lower = sum(self.below[_entry(i, j)][component] * normal[j] for j in range(i))
            scale = self.diagonal[i][component]
            returns.append(self.means[i][component] + scale * normal[i] + lower)
        return jnp.stack(returns)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def parts(
    outputs: Float[Array, "outputs ..."], sizes: tuple[int, ...]
) -> list[Float[Array, "size ..."]]:
    """Slices one after another, whose gradients are written each to its place.

    XLA would put them together number by number, and ask of each which slice it is from.
    """
    return jnp.split(outputs, np.cumsum(sizes)[:-1])


def _parts_forward(outputs: Array, sizes: tuple[int, ...]) -> tuple[list[Array], Array]:
    return parts(outputs, sizes), outputs


def _parts_backward(sizes: tuple[int, ...], whole: Array, gradients: list[Array]) -> tuple[Array]:
    # Over the outputs, all of which are replaced: over zeros XLA would pad and add up.
    for start, gradient in zip(np.cumsum((0, *sizes)), gradients, strict=False):
        if gradient.shape[0]:
            whole = jax.lax.dynamic_update_slice_in_dim(whole, gradient, int(start), 0)
    return (whole,)


parts.defvjp(_parts_forward, _parts_backward)


def _entry(row: int, column: int) -> int:
    """Position of a below-diagonal entry in the packed lower triangle."""
    return row * (row - 1) // 2 + column


@dataclass(frozen=True)
class ComponentGradients:
    """Log densities of mixtures, of the same values, and with gradients that train them better.

    prior: strength of the regulariser that keeps components, in nats.
    beta: how far gradients by means are evened out.
    """

    prior: float = 0.0
    beta: float = 0.0

    def __call__(self, law: Any, inputs: Array, returns: Array) -> Array:
        """Log densities of a law made of mixtures, each of them in this way."""
        return law.log_probs(inputs, returns, self.of)

    def of(self, mixture: Mixture, returns: Float[Array, "d ..."]) -> Float[Array, "..."]:
        """Log densities of one or several returns for each mixture.

        Gradients are evened out first, so that the regulariser moves narrow components no more
        than others.
        """
        if self.beta > 0:
            pairs = zip(mixture.means, mixture.diagonal, strict=True)
            means = tuple(even_gradients(*pair, self.beta) for pair in pairs)
            mixture = mixture._replace(means=means)
        densities = mixture.log_density(returns)
        if self.prior > 0:
            densities = densities - self.prior * from_returns(mixture, returns)
        return densities


@jax.custom_jvp
def from_returns(mixture: Mixture, returns: Float[Array, "d ..."]) -> Float[Array, ""]:
    """Zero, with the gradient of `distance_from`."""
    return jnp.zeros(())


@from_returns.defjvp
def _from_returns_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # The distance itself is never worked out, with a logarithm for every component and return.
    return from_returns(*primals), jax.jvp(distance_from, primals, tangents)[1]


def distance_from(mixture: Mixture, returns: Float[Array, "d ..."]) -> Float[Array, ""]:
    """A distance of every component from the returns, and of the weights from equal ones.

    A narrow component far from all returns explains none of them, so their likelihood never moves
    it again. Where returns are sure at one stage and spread at the next, most would be lost for
    good. The distance is the negative log density of a Cauchy distribution at the component: what
    is unused waits where the returns of the row are, where a little weight does no harm. Its
    gradient is bounded, and hardly felt by a component that explains any returns, however rare
    and far they are. The arrays of the mixture stretch to those of the returns.
    """
    away = -jnp.mean(mixture.weights)
    for means, scales, values in zip(mixture.means, mixture.diagonal, returns, strict=True):
        distance = jnp.log1p(((values - means) / scales) ** 2)
        away += (jnp.mean(distance) + jnp.mean(jnp.log(scales))) / len(mixture.means)
    return away


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def even_gradients(
    means: Float[Array, "*shape"], scales: Float[Array, "*shape"], beta: float
) -> Float[Array, "*shape"]:
    """The means of Gaussians as they are, but gradients by them times `scales` to 2 beta.

    A likelihood's gradient by a mean is as steep as the component is narrow, and so is its noise.
    With beta = 1/2 that noise is the same for all, as it is by weights and spreads already, and
    narrow components no longer drown what the others and rare rows have to say. Seitzer, Tavakoli,
    Antic, Martius (2022), for one Gaussian.
    """
    return means


even_gradients.defvjp(
    lambda means, scales, beta: (means, scales),
    lambda beta, scales, gradients: (gradients * scales ** (2 * beta), jnp.zeros_like(scales)),
)


class Conditionals(eqx.Module):
    """What networks say of each coordinate of the return, given (x, a) and the earlier coordinates.

    These enter a network's first layer through waves of several lengths, so that a sharp change
    along one coordinate can be followed by the next.
    """

    networks: tuple[Network, ...]
    histories: tuple[Float[Array, "features hidden"], ...]

    @classmethod
    def build(
        cls,
        sizes: Sizes,
        hidden: tuple[int, ...],
        output_bias: np.ndarray,
        generator: np.random.Generator,
    ) -> Self:
        """Networks that say `output_bias` at first, whatever they are told."""
        networks = [
            Network(sizes.inputs, hidden, output_bias, generator, codes=sizes.codes)
            for _ in range(sizes.returns)
        ]
        histories = []
        for earlier in range(1, sizes.returns):
            width = earlier * (1 + 2 * len(FREQUENCIES))
            matrix = generator.standard_normal((width, hidden[0])) / np.sqrt(width)
            histories.append(jnp.asarray(matrix, jnp.float32))
        return cls(tuple(networks), tuple(histories))

    def first(self, inputs: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        """Outputs of the first network, which knows no other coordinate."""
        return self.networks[0](inputs)

    def projected(self, inputs: Float[Array, " inputs"]) -> tuple[Float[Array, " hidden"], ...]:
        """What each of the other networks makes of the input alone."""
        return tuple(network.project(inputs) for network in self.networks[1:])

    def outputs(
        self, projected: Float[Array, " hidden"], earlier: Float[Array, " j"]
    ) -> Float[Array, " outputs"]:
        """Of the network that comes after the earlier coordinates."""
        coordinate = earlier.size
        waves = fourier_features(earlier, FREQUENCIES) @ self.histories[coordinate - 1]
        return self.networks[coordinate].finish(projected + waves)


class Known(NamedTuple):
    """What is known before any coordinate is: of the first one all, and the others' beginnings."""

    first: Any
    others: tuple[Float[Array, " hidden"], ...]


class TriangularLaw(Density):
    """p(z | x, a) = prod_j p(z_j | x, a, z_1 .. z_j-1), where a network gives each factor."""

    conditionals: eqx.AbstractVar[Conditionals]

    # Uniform numbers that `draw_one` consumes.
    noise_a_coordinate: ClassVar[int]

    @abstractmethod
    def factor(self, outputs: Float[Array, " outputs"]) -> Any:
        """The distribution of one coordinate, from the outputs of its network."""

    @abstractmethod
    def log_prob_of_one(self, factor: Any, value: Float[Array, ""]) -> Float[Array, ""]:
        """Log density of one coordinate."""

    @abstractmethod
    def draw_one(self, factor: Any, uniforms: Float[Array, " noise"]) -> Float[Array, ""]:
        """One coordinate, from its distribution as `ready` made it."""

    def ready(self, factor: Any) -> Any:
        """The distribution of a coordinate in the form that `draw_one` needs."""
        return factor

    @property
    def return_dim(self) -> int:
        """A network for each coordinate."""
        return len(self.conditionals.networks)

    @property
    def noise_size(self) -> int:
        """As many numbers for each coordinate."""
        return self.noise_a_coordinate * self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> Known:
        """What can be said before the first coordinate is drawn."""
        known = self._known(inputs)
        return known._replace(first=self.ready(known.first))

    def draw(self, conditioned: Known, uniforms: Float[Array, " noise"]) -> Float[Array, " d"]:
        """One coordinate after the other."""
        noise = uniforms.reshape(-1, self.noise_a_coordinate)
        returns = self.draw_one(conditioned.first, noise[0])[None]
        for projected, numbers in zip(conditioned.others, noise[1:], strict=True):
            following = self.ready(self.factor(self.conditionals.outputs(projected, returns)))
            returns = jnp.append(returns, self.draw_one(following, numbers))
        return returns

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """The sum over coordinates of their conditional log densities."""
        return self._log_density(self._known(inputs), returns, self._plain)

    def log_probs(
        self,
        inputs: Float[Array, "rows inputs"],
        returns: Float[Array, "rows draws d"],
        density: Callable[[Any, Array], Array] | None = None,
    ) -> Float[Array, " rows*draws"]:
        """Log densities of all rows and draws, which are one axis to the networks.

        density: that of a coordinate's distribution at a return (1,), of the same values and
            perhaps with other gradients.
        """
        one = self._plain if density is None else density
        return over_draws(
            self._known, lambda known, z: self._log_density(known, z, one), inputs, returns
        )

    def _plain(self, factor: Any, value: Float[Array, "1"]) -> Float[Array, ""]:
        return self.log_prob_of_one(factor, value[0])

    def _known(self, inputs: Float[Array, " inputs"]) -> Known:
        conditionals = self.conditionals
        return Known(self.factor(conditionals.first(inputs)), conditionals.projected(inputs))

    def _log_density(
        self, known: Known, returns: Float[Array, " d"], density: Callable[[Any, Array], Array]
    ) -> Float[Array, ""]:
        total = density(known.first, returns[:1])
        for j, projected in enumerate(known.others, start=1):
            factor = self.factor(self.conditionals.outputs(projected, returns[:j]))
            total += density(factor, returns[j : j + 1])
        return total
