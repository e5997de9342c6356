"""How a fit runs: compiled once, repeatable, stopped where it fails."""

import re
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest
from quick_fits import TABLE, TABLE_TRAINING, cycle

import fle
from fle.errors import FLEWarning, TrainingError
from fle.fitting.optimiser import Adam
from fle.models.families.gaussian import ExpectedLikelihood
from fle.recipe import GRADIENT_NORM, ONE_FIT

TRACES, PREPARED = [], []
# Trainings this short have no tails, and say so.
BRIEF = pytest.mark.filterwarnings("ignore:the first fit misses rare returns:fle.FLEWarning")


class CountedObjective(ExpectedLikelihood):
    """Notes each time its loss or its targets are traced: Python runs only then."""

    def loss(self, law, inputs, targets):
        TRACES.append(1)
        return super().loss(law, inputs, targets)

    def prepare(self, law, previous, transition):
        PREPARED.append(1)
        return super().prepare(law, previous, transition)


@dataclass(frozen=True)
class Counted(fle.Gaussian):
    def objective(self, recipe):
        return CountedObjective()


def traces(batch_size, **problem):
    """How often the loss was traced in one fit. Another batch size is another compilation."""
    TRACES.clear()
    PREPARED.clear()
    changes = problem.pop("recipe", {})
    training = fle.Recipe(steps=4, batch_size=batch_size, weight_decay=0.0, **changes)
    spec = Counted(hidden=())
    fle.evaluate(problem.pop("data", cycle(200)), [1.0], model=spec, recipe=training, **problem)
    return len(TRACES)


def test_one_compilation_whatever_the_number_of_stages():
    # The held-out loss does not depend on the number of steps: compile it beforehand.
    traces(19, gamma=0.9, stages=2)
    few = traces(20, gamma=0.9, stages=3)
    many = traces(21, gamma=0.9, stages=8)
    assert few == many
    # Once for the value and its gradient, and once more at most for a scan's types.
    assert 1 <= few <= 4
    # A second fit of the same shapes compiles nothing at all.
    assert traces(21, gamma=0.5, stages=5) == 0
    assert not PREPARED
    # With a finite horizon locations have a trend: another model, and its held-out loss.
    assert 1 <= traces(21, horizon=9) <= few + 1
    assert traces(21, horizon=9, gamma=0.5) == 0
    # As many fits as steps may be asked by targets that follow the log; without it, only the last.
    one_step = {"trace": 0.0}
    assert 1 <= traces(21, horizon=9, recipe=one_step) <= few + 1
    assert traces(21, horizon=5, recipe=one_step) == 0
    # Steps with unequal numbers of rows: episodes of lengths 10 and 4.
    data = cycle(200).with_steps()
    kept = (data.episodes % 2 == 0) | (data.steps < 4)
    # Other numbers of rows: training and the held-out loss, once each.
    assert traces(22, horizon=10, data=data.subset(kept)) <= few + 1


def test_other_numbers_of_rows_compile_what_depends_on_them_alone(caplog):
    problem = {"gamma": 0.9, "stages": 2}
    traces(20, **problem)
    with jax.log_compiles():
        traces(20, data=cycle(210), **problem)
    compiled = re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text)
    assert compiled == ["train_stage", "mean_loss"]


def test_logs_of_one_size_compile_nothing_anew_whatever_follows_what():
    def jumps(seed):
        states = np.arange(200) % 5
        generator = np.random.default_rng(seed)
        return fle.Dataset(
            observations=states,
            actions=np.zeros(200, int),
            rewards=generator.standard_normal(200),
            next_observations=generator.integers(5, size=200),
            terminations=np.zeros(200, bool),
            truncations=np.zeros(200, bool),
            initial_observations=np.arange(5),
        )

    problem = {"gamma": 0.9, "stages": 2, "recipe": {"trace": 0.0}}
    assert traces(20, data=jumps(0), **problem) > 0
    assert traces(20, data=jumps(1), **problem) == 0


def small_fit(seed, **settings):
    training = fle.Recipe(steps=20, batch_size=50, weight_decay=0.0)
    data = cycle(200)
    noisy = np.random.default_rng(0).normal(size=(200, 1))
    object.__setattr__(data, "rewards", noisy)
    spec = fle.GMM(components=2, hidden=(4,))
    return fle.evaluate(data, [1.0], horizon=2, model=spec, recipe=training, seed=seed, **settings)


@BRIEF
def test_the_same_seed_gives_identical_results():
    first, second = small_fit(3), small_fit(3)
    assert np.array_equal(first.returns.samples, second.returns.samples)
    for a, b in zip(first.records, second.records, strict=True):
        assert (a.loss, a.held_out_loss) == (b.loss, b.held_out_loss)
        assert np.array_equal(a.cvar, b.cvar)


@BRIEF
def test_another_seed_gives_other_results():
    first, second = small_fit(3), small_fit(4)
    assert not np.array_equal(first.returns.samples, second.returns.samples)
    assert first.records[0].loss != second.records[0].loss


def test_loss_that_is_not_a_number_stops_the_fit_and_names_the_stage():
    training = replace(TABLE_TRAINING, learning_rate=1e30)
    calls = []

    class Recorder:
        def start(self, stages, title):
            calls.append("start")

        def advance(self, stage, loss):
            calls.append("advance")

        def finish(self):
            calls.append("finish")

    with pytest.raises(TrainingError, match=r"stage 1 of 3 .* learning rate \(now 1e\+30\)"):
        fle.evaluate(
            cycle(),
            [1.0],
            horizon=3,
            model=TABLE,
            recipe=training,
            progress=Recorder(),
        )
    # The line of a progress bar is left in any case.
    assert calls == ["start", "finish"]


def test_learning_rate_falls_over_a_stage_or_over_the_fit():
    by_stage = replace(ONE_FIT, steps=200, learning_rate=1.0)
    rates = by_stage.learning_rates(3, 5)
    # Warm-up over 100 steps times half a cosine: at step 100 of 200 that is 1/2.
    assert rates[100] == pytest.approx(0.5)
    assert rates[0] == pytest.approx(0.01)
    assert rates[-1] < 1e-3
    assert np.array_equal(rates, by_stage.learning_rates(0, 5))
    over_fit = replace(by_stage, schedule="fit")
    whole = np.concatenate([over_fit.learning_rates(stage, 5) for stage in range(5)])
    # Step 500 of 1000.
    assert whole[500] == pytest.approx(0.5)
    assert np.all(np.diff(whole[100:]) <= 0)
    constant = replace(by_stage, schedule="constant")
    assert np.all(constant.learning_rates(3, 5) == 1.0)


def test_average_is_that_of_the_last_steps():
    # Four of eight steps: a running mean with weights 1, 1/2, 1/3, 1/4 from the fifth step on.
    rates = replace(ONE_FIT, steps=8, average=0.5).average_rates()
    assert np.allclose(rates, [1, 1, 1, 1, 1, 1 / 2, 1 / 3, 1 / 4])
    value = 0.0
    for step, rate in enumerate(rates):
        value += rate * (step - value)
    # The mean of steps 4, 5, 6, 7.
    assert value == pytest.approx(5.5)


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_constant_rewards_are_no_trouble(size):
    data = cycle(noise=0.0)
    object.__setattr__(data, "rewards", size * data.rewards)
    with pytest.warns(FLEWarning, match="point mass"):
        result = fle.evaluate(data, [1.0], horizon=3, model=TABLE, recipe=TABLE_TRAINING)
    assert np.isfinite(result.returns.samples).all()
    # A constant's scale is a hundredth of its size, and 1 where it is 0: of that, 0.02 for the fit
    # and 5 standard errors of 100,000 draws.
    scale = 0.03 if size else 1.0
    assert abs(result.returns.mean() - 3 * size) < scale * (0.02 + 5 / np.sqrt(1e5))


@BRIEF
def test_strong_decay_ends_where_rewards_can_no_longer_be_learned_by_heart():
    """The last step pays noise, which 20 inputs can memorise; the one before pays nothing."""
    generator = np.random.default_rng(0)
    rows, inputs = 1000, 20
    observations = generator.standard_normal((2 * rows, inputs))
    last = np.repeat([False, True], rows)
    data = fle.Dataset(
        observations=observations,
        actions=np.zeros(2 * rows, int),
        rewards=np.where(last, generator.standard_normal(2 * rows), 0.0),
        next_observations=generator.standard_normal((2 * rows, inputs)),
        terminations=last,
        truncations=~last,
        steps=last.astype(int),
        initial_observations=observations[:50],
        number_of_actions=1,
    )
    fit = fle.evaluate(
        data,
        lambda x: np.ones((len(x), 1)),
        horizon=2,
        model=fle.GMM(components=3, hidden=(32, 32)),
        # Batches so large that noise drawn afresh is not learned by heart either.
        recipe=fle.Recipe(steps=500, batch_size=500),
        progress=None,
    )
    decays = [note.split(",")[0] for note in fit.notes if note.startswith("weight decay")]
    assert decays == ["weight decay 3 from stage 1 on", "weight decay 0.03 from stage 2 on"]


def test_decay_goes_with_the_root_of_the_batch_and_spares_biases():
    data = cycle(200)
    spec = fle.Gaussian(std=1.0, hidden=(4,))
    # At a learning rate this small, a step changes nothing to speak of but by decay.
    rate, decay, steps = 1e-6, 1e4, 20

    def shrinkage(batch_size):
        training = fle.Recipe(
            steps=steps,
            batch_size=batch_size,
            learning_rate=rate,
            weight_decay=decay,
            schedule="fit",
            average=1 / steps,
        )
        start, end = (
            fle.evaluate(data, [1.0], gamma=0.9, stages=1, model=spec, recipe=t).fits[0].law
            for t in (replace(training, weight_decay=0.0), training)
        )
        total = replace(ONE_FIT, **training.given).learning_rates(0, 1).sum()
        assert np.allclose(end.network.biases[0], start.network.biases[0], atol=1e-4)
        return -np.log(end.network.gates / start.network.gates).mean() / (total * decay)

    # Gates shrink by the factor 1 - rate * decay * root(batch / 500) at every step.
    assert shrinkage(20) == pytest.approx(np.sqrt(20 / 500), rel=0.02)
    assert shrinkage(80) == pytest.approx(np.sqrt(80 / 500), rel=0.02)


def test_a_step_of_adam_is_that_of_optax():
    """With gradients that are clipped, and others; up to the rounding of single precision."""
    optax = pytest.importorskip("optax")
    chain = optax.chain(optax.clip_by_global_norm(GRADIENT_NORM), optax.scale_by_adam())
    gradients = np.random.default_rng(0).normal(size=(20, 50)).astype(np.float32)
    gradients[::3] *= 1e4
    gradients[7], gradients[8] = 0, 1e25

    def ours(adam, gradient):
        return adam.step(gradient)[::-1]

    def theirs(state, gradient):
        return chain.update(gradient, state)[::-1]

    blank = jax.numpy.zeros(50)
    found, expected = (
        np.asarray(jax.jit(jax.lax.scan, static_argnums=0)(step, first, gradients)[1])
        for step, first in ((ours, Adam.of(blank)), (theirs, chain.init(blank)))
    )
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-6)
