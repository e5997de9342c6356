import numpy as np
import pytest
from scipy import stats

from fle.errors import DataError, FLEWarning, ModelError, SettingsError
from fle.returns import ReturnDistribution

N = 100_000


def normal(mean=1.0, std=2.0):
    return ReturnDistribution(
        draw=lambda generator, n: generator.normal(mean, std, (n, 1)),
        log_density=lambda z: stats.norm.logpdf(z[:, 0], mean, std),
    )


def uniform_square():
    return ReturnDistribution(
        draw=lambda generator, n: generator.random((n, 2)), names=("speed", "energy")
    )


def test_moments_of_a_normal():
    returns = normal()
    # 5 standard errors each: false alarm 6e-7.
    assert abs(returns.mean() - 1.0) < 5 * 2.0 / np.sqrt(N)
    assert abs(returns.variance() - 4.0) < 5 * 4.0 * np.sqrt(2 / N)
    assert returns.std() == pytest.approx(np.sqrt(returns.variance()))
    assert isinstance(returns.mean(), float)
    truth = 1.0 - 2.0 * stats.norm.pdf(stats.norm.ppf(0.1)) / 0.1
    # Var[(q - Z)+] <= E[(q - Z)^2; Z < q] <= level * std^2 for a normal lower tail.
    assert abs(returns.cvar(0.1) - truth) < 5 * 2.0 / np.sqrt(0.1 * N)


def test_statistics_come_from_one_cached_sample():
    calls = []

    def draw(generator, n):
        calls.append(n)
        return generator.normal(size=(n, 1))

    returns = ReturnDistribution(draw=draw, sample_size=5000)
    assert calls == []
    numbers = (returns.mean(), returns.cvar(0.1), returns.quantile(0.5), returns.cdf(0.0))
    assert calls == [5000]
    again = ReturnDistribution(draw=draw, sample_size=5000)
    assert numbers == (again.mean(), again.cvar(0.1), again.quantile(0.5), again.cdf(0.0))


def test_sample_shapes_and_seeds():
    assert normal().sample(7, seed=1).shape == (7,)
    assert uniform_square().sample(7, seed=1).shape == (7, 2)
    assert np.array_equal(normal().sample(7, seed=1), normal().sample(7, seed=1))
    assert not np.array_equal(normal().sample(7, seed=1), normal().sample(7, seed=2))


def test_quantile_cdf_and_probability_agree_by_hand():
    returns = ReturnDistribution.from_samples(np.arange(1, 101))
    assert returns.quantile(0.25) == 25.0
    assert np.array_equal(returns.quantile([0.25, 0.5]), [25.0, 50.0])
    assert returns.value_at_risk(0.3) == 30.0
    assert returns.cdf(25) == 0.25
    assert np.array_equal(returns.cdf([0, 100]), [0.0, 1.0])
    # Strict on both sides: 11..19 of 1..100.
    assert returns.probability(above=10, below=20) == 0.09
    assert returns.probability(below=1) == 0.0
    assert returns.lower_partial_moment(3) == pytest.approx((2 + 1) / 100)


def test_empirical_law_uses_exactly_its_samples():
    samples = np.random.default_rng(0).normal(size=400)
    returns = ReturnDistribution.from_samples(samples)
    assert returns.mean() == pytest.approx(samples.mean(), abs=1e-14)
    assert set(returns.sample(50, seed=3)) <= set(samples)
    samples[:] = 0.0
    assert returns.std() > 0.5
    assert returns.names == ("return",)
    assert ReturnDistribution.from_samples(np.ones((3, 2))).names == ("return_0", "return_1")


def test_joint_probability_of_independent_uniforms():
    returns = uniform_square()
    # P(X < 0.3, Y > 0.6) = 0.12; 5 standard errors: false alarm 6e-7.
    tolerance = 5 * np.sqrt(0.12 * 0.88 / N)
    joint = returns.probability(below=[0.3, None], above=[None, 0.6])
    assert abs(joint - 0.12) < tolerance
    assert joint == returns.probability(below=[0.3, np.inf], above=[-np.inf, 0.6])
    marginal = returns.marginal("speed").probability(below=0.3)
    assert marginal == returns.probability(below=[0.3, None])


def test_marginals_and_weighted_sums_use_the_joint_draws():
    returns = uniform_square()
    assert np.array_equal(returns.marginal(1).samples[:, 0], returns.samples[:, 1])
    assert returns.marginal(-1).names == returns.marginal("energy").names == ("energy",)
    total = returns.scalarize([2.0, -1.0])
    assert total.mean() == pytest.approx(2 * returns.mean()[0] - returns.mean()[1])
    assert total.names == ("2*speed + -1*energy",)
    direct = returns.sample(5, seed=9)
    assert np.allclose(total.sample(5, seed=9), direct @ [2.0, -1.0])
    scalar = normal()
    assert scalar.marginal(0) is scalar


def test_correlation():
    def draw(generator, n):
        x, y = generator.normal(size=(2, n))
        return np.stack([x, 0.6 * x + 0.8 * y], axis=1)

    matrix = ReturnDistribution(draw=draw, names=("a", "b")).correlation()
    # The standard error of a correlation is (1 - rho^2) / sqrt(n); 5 of them.
    assert abs(matrix[0, 1] - 0.6) < 5 * 0.64 / np.sqrt(N)
    assert normal().correlation().tolist() == [[1.0]]
    constant = ReturnDistribution.from_samples(np.stack([np.arange(50), np.ones(50)], axis=1))
    assert np.isnan(constant.correlation()[0, 1])


def test_log_prob_shapes():
    returns = normal()
    assert returns.log_prob(1.0) == pytest.approx(stats.norm.logpdf(1.0, 1.0, 2.0))
    assert isinstance(returns.log_prob(1.0), float)
    assert returns.log_prob([0.0, 1.0]).shape == (2,)
    assert returns.log_prob(np.zeros((4, 1))).shape == (4,)
    vector = ReturnDistribution(
        draw=lambda generator, n: generator.normal(size=(n, 2)),
        log_density=lambda z: stats.norm.logpdf(z).sum(axis=1),
        names=("a", "b"),
    )
    assert isinstance(vector.log_prob([0.0, 0.0]), float)
    assert vector.log_prob(np.zeros((3, 2))).shape == (3,)
    with pytest.raises(ModelError, match=r"\(n, 2\)"):
        vector.log_prob(np.zeros(3))


def test_no_density_says_what_to_use_instead():
    with pytest.raises(ModelError, match="density model"):
        uniform_square().log_prob([0.1, 0.2])


@pytest.mark.parametrize("question", ["quantile", "value_at_risk", "cvar", "cdf"])
def test_scalar_questions_to_a_vector(question):
    with pytest.raises(ModelError, match=r"marginal\('speed'\).*scalarize"):
        getattr(uniform_square(), question)(0.5)


def test_thin_tails_warn_with_the_figures():
    returns = ReturnDistribution.from_samples(np.arange(100.0))
    with pytest.warns(FLEWarning, match="about 5 of 100"):
        returns.cvar(0.05)
    with pytest.warns(FLEWarning, match="about 5 of 100"):
        returns.quantile(0.95)
    assert returns.cvar(0.2) == 9.5
    # 0.0002 * 100_000 is 20 up to rounding, and is enough.
    normal().cvar(0.0002)


def test_settings_and_data_errors():
    with pytest.raises(SettingsError, match="strictly between"):
        normal().cvar(10)
    with pytest.raises(SettingsError, match="got neither"):
        normal().probability()
    with pytest.raises(SettingsError, match="one number"):
        uniform_square().probability(below=0.5)
    with pytest.raises(SettingsError, match=r"expected one of \('speed', 'energy'\), got 'money'"):
        uniform_square().marginal("money")
    with pytest.raises(SettingsError, match="2 finite numbers"):
        uniform_square().scalarize([1.0])
    with pytest.raises(DataError, match="not finite"):
        ReturnDistribution.from_samples([1.0, np.nan])
    with pytest.raises(ModelError, match=r"draw: expected shape \(100000, 1\)"):
        ReturnDistribution(draw=lambda generator, n: generator.normal(size=n)).mean()
    with pytest.raises(ModelError, match="not finite"):
        ReturnDistribution(draw=lambda generator, n: np.full((n, 1), np.inf)).mean()


def test_summary_and_repr():
    text = uniform_square().summary()
    for word in ("speed", "energy", "standard deviation", "5% quantile", "correlation with energy"):
        assert word in text
    alone = normal().summary(["expectile:0.1"])
    assert "10% expectile" in alone
    assert "correlation" not in alone
    assert "with density" in repr(normal())


def test_every_statistic_of_a_weighted_sample():
    # The weights 1, 2, 1 on (0, 8), (4, 0), (8, 4) are the same as counting the second row twice.
    rows = np.array([[0.0, 8.0], [4.0, 0.0], [8.0, 4.0]])
    weighted = ReturnDistribution.from_samples(rows, ("a", "b"), weights=[1, 2, 1])
    repeated = ReturnDistribution.from_samples(rows[[0, 1, 1, 2]], ("a", "b"))
    assert weighted.effective_size == pytest.approx(16 / 6)
    for ask in (
        lambda law: law.mean(),
        lambda law: law.variance(),
        lambda law: law.std(),
        lambda law: law.correlation(),
        lambda law: law.probability(below=[8, None], above=[None, -1]),
        lambda law: law.marginal("a").cdf([0, 4, 7]),
        lambda law: law.scalarize([1, 2]).mean(),
        lambda law: law.scalarize([1, 2]).lower_partial_moment(10, 2),
        lambda law: law.scalarize([1, 2]).probability(above=5),
        lambda law: law.marginal("b").measure_if_supported("mean"),
    ):
        assert ask(weighted) == pytest.approx(ask(repeated))
    with pytest.warns(FLEWarning, match="of 2.666666667 draws"):
        assert weighted.marginal("a").cvar(0.5) == 2.0


def test_fresh_draws_of_a_weighted_sample_follow_the_weights():
    weighted = ReturnDistribution.from_samples([0.0, 1.0], weights=[3.0, 1.0])
    # A share of 1/4 among 10,000: 5 standard errors, false alarm 6e-7.
    tolerance = 5 * np.sqrt(0.25 * 0.75 / 10_000)
    assert abs(weighted.sample(10_000, seed=0).mean() - 0.25) < tolerance
    # As many draws that count alike as are asked for.
    assert weighted.some_draws(10).shape == (10, 1)
    many = ReturnDistribution.from_samples(
        np.repeat([0.0, 1.0], 10_000), weights=np.repeat([3.0, 1.0], 10_000)
    )
    assert abs(many.some_draws(10_000).mean() - 0.25) < tolerance
    plain = ReturnDistribution.from_samples(np.arange(5))
    assert plain.some_draws(10) is plain.samples
    assert len(np.unique(plain.some_draws(3))) == 3


def test_weights_that_do_not_fit():
    with pytest.raises(DataError, match=r"weights: expected 2 .* got shape \(1,\)"):
        ReturnDistribution.from_samples([1.0, 2.0], weights=[1.0])
    with pytest.raises(DataError, match="none negative"):
        ReturnDistribution.from_samples([1.0, 2.0], weights=[1.0, np.nan])
    with pytest.raises(SettingsError, match="given_samples"):
        ReturnDistribution(
            draw=lambda generator, n: generator.normal(size=(n, 1)), weights=np.ones(3)
        )
