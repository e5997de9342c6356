"""Every other estimator asked about one evaluation, for a fraction of what it cost."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import chi2, norm

from fle.baselines.critics import Critics
from fle.baselines.fitted_q import MOST_ROWS, MeanEstimate, fitted_q_evaluation
from fle.baselines.importance import (
    direct_method,
    doubly_robust,
    shortened,
    stitching,
    weighted_importance_sampling,
    weighted_per_decision_importance_sampling,
)
from fle.baselines.least_squares import MOST_FEATURES, ROWS_A_FEATURE
from fle.baselines.logged_episodes import Estimate, FloatArray, StepWeights, WeightedEpisodes
from fle.data.episodes import starts_episode
from fle.errors import DataError, PolicyError, SettingsError
from fle.fitting.behaviour import LoggingPolicy, logging_policy
from fle.fitting.decisions import MOST_COUPLED, ROWS_FOR_COUPLING
from fle.fitting.evaluation import Evaluation
from fle.fitting.plans import Plan
from fle.returns import ReturnDistribution
from fle.returns.measures import Measure, measure
from fle.returns.opinions import (
    FITTED_Q,
    ROBUST,
    Figure,
    Opinion,
    SecondOpinions,
    figures_held,
    refuting,
)

# Matrices, rows by features, that fitted Q evaluation holds at a time.
MATRICES = 8
# Fewer episodes have a tenth that is a matter of luck.
LEAST_EFFECTIVE = 50.0
# Rows at which a critic is asked, and its draws at each.
CRITIC_ROWS, CRITIC_DRAWS = 40_000, 4
# Share of a standard deviation by which half of the features may move it.
ROUGH = 0.05
# Draws of the evaluation itself.
OWN_DRAWS = 20_000
# Mean discount, over all episodes, of what follows where they were cut off, that may be left out.
NEGLIGIBLE = 0.02
# Standard errors between means that a bias of stitching must show, and what is too small to matter,
# in standard deviations of the return.
APART, NEARLY = 2.0, 0.05
# Chance at which starts of the same law are taken for different ones.
OTHER_STARTS = 1e-4
# Who stands in for what weights do not show.
IN_SAMPLE = "its critic is the estimate, which was fitted to the same episodes"
OUT_OF_BAG = "its critics are fits to resampled episodes, asked about those that they lack"
REFUSALS = (DataError, PolicyError, SettingsError)
# An estimate that can be asked for figures of each coordinate.
Asked = Estimate | MeanEstimate


def second_opinions_of(plan: Plan, evaluation: Evaluation | None = None) -> SecondOpinions:
    """The opinions of all other estimators, beside the evaluation.

    Nothing is fitted but least squares: propensities are those of the log, of the plan, or counts.

    Args:
        plan: what `fle.plan` gave.
        evaluation: what carrying it out gave. Without one, `own` is empty, nothing follows where
            episodes were cut off, and there is no doubly robust estimate.

    Example: `print(fle.baselines.second_opinions_of(plan, plan.carry_out()))`.
    """
    names, seed = plan.data.reward_names, plan.provenance.seed
    if evaluation is not None and evaluation.second_opinions is not None:
        return _again(plan, evaluation, evaluation.second_opinions)
    mean = fitted_q_evaluation(plan, replicates=0, seed=seed)
    opinions = _fitted_q(mean)
    opinions += _importance(plan, evaluation, names)
    opinions += _asked("stitching", names, lambda: stitching(plan, seed=seed))
    opinions = [
        _with_mean_like(one, opinions, mean.mean(names.index(one.coordinate))) for one in opinions
    ]
    own: tuple[Opinion, ...] = ()
    if evaluation is not None:
        own = own_figures(evaluation.returns, direct_method(evaluation, draws=OWN_DRAWS), mean)
    return SecondOpinions(own, tuple(opinions))


def _again(plan: Plan, evaluation: Evaluation, before: SecondOpinions) -> SecondOpinions:
    """What replicates change: its own standard errors, and the critic of doubly robust."""
    kept = [one for one in before.opinions if one.estimator != ROBUST]
    try:
        episodes = WeightedEpisodes.of(plan, _propensities(plan))
        _require_same_starts(plan)
    except REFUSALS:
        return replace(before, own=_by_refits(before.own, evaluation.returns))
    found = _asked(ROBUST, plan.data.reward_names, _corrected(episodes, evaluation), sampled=False)
    place = next(i for i, one in enumerate(before.opinions) if one.estimator == ROBUST)
    return SecondOpinions(
        _by_refits(before.own, evaluation.returns),
        (*kept[:place], *found, *kept[place:]),
    )


def memory_of_opinions(plan: Plan) -> float:
    """Bytes, roughly: the matrices of fitted Q evaluation, which are the largest."""
    rows = min(len(plan.data), MOST_ROWS)
    return 8.0 * MATRICES * rows * min(rows // ROWS_A_FEATURE + 8, MOST_FEATURES)


def own_figures(
    returns: ReturnDistribution, drawn: Estimate, mean: MeanEstimate
) -> tuple[Opinion, ...]:
    """An estimate's own figures, one opinion a coordinate, with standard errors.

    They are those of its refits where there are any. Else it counts for as many returns as would
    have the standard error that fitted Q evaluation has on the same rows.
    """
    found = []
    for place, name in enumerate(mean.return_names):
        figures = _figures(drawn, place)
        worth = drawn.effective_size
        spread, error = figures["std"].value, mean.mean(place).standard_error
        if error:
            worth = min(max((spread / error) ** 2, 1.0), drawn.effective_size)
        scale = np.sqrt(drawn.effective_size / worth)
        figures = {
            asked: Figure(value, None if e is None else e * float(scale))
            for asked, (value, e) in figures.items()
        }
        found.append(Opinion("the estimate", name, figures, float(worth)))
    return _by_refits(tuple(found), returns)


def _by_refits(own: tuple[Opinion, ...], returns: ReturnDistribution) -> tuple[Opinion, ...]:
    """With the standard errors that replicates show, where there are any."""
    if returns.replicates is None:
        return own
    found = []
    for place, opinion in enumerate(own):
        laws = [law.marginal(place).samples[:, 0] for law in returns.replicates.laws]
        figures = {}
        for asked, (value, _) in opinion.figures.items():
            of = measure(asked).of
            away = np.array([of(law) for law in laws]) - value
            figures[asked] = Figure(value, float(np.sqrt(np.mean(away**2))))
        found.append(replace(opinion, figures=figures))
    return tuple(found)


def _figures(estimate: Asked, coordinate: int) -> dict[str, Figure]:
    """Of what is compared, all that an estimator has; a sample has more of what tables show."""
    if not isinstance(estimate, Estimate):
        return {"mean": estimate.mean(coordinate), "std": estimate.std(coordinate)}
    found = {one: _figure(estimate, measure(one), coordinate) for one in figures_held()}
    return {asked: figure for asked, figure in found.items() if figure is not None}


def _figure(estimate: Estimate, asked: Measure, coordinate: int) -> Figure | None:
    """A measure by an estimator that is a mean over episodes, None where it has no formula."""
    values = estimate.atoms.values[:, coordinate]
    level = asked.parameters[0] if asked.parameters else 0.5
    match asked.family.name:
        case "mean":
            return estimate.mean(coordinate)
        case "std":
            return estimate.std(coordinate)
        case "median" | "quantile":
            return estimate.quantile(level, coordinate)
        case "cvar":
            return estimate.cvar(level, coordinate)
        case "loss":
            return estimate.atoms.figure((values < 0).astype(float))
        case _:
            return None


def _fitted_q(mean: MeanEstimate) -> list[Opinion]:
    """What is wrong with the class of functions is part of the standard error."""
    found = []
    for place, name in enumerate(mean.return_names):
        figures = _figures(mean, place)
        for asked, moved in (("mean", mean.class_errors), ("std", mean.std_class_errors)):
            value, error = figures[asked]
            figures[asked] = Figure(value, float(np.hypot(error or 0.0, moved[place])))
        remarks = mean.remarks
        if mean.std_class_errors[place] > ROUGH * figures["std"].value:
            # An error of Q adds to the variance, at every step, and never takes away from it.
            del figures["std"]
            remarks = remarks or ("its functions are too coarse for a standard deviation",)
        found.append(Opinion(mean.name, name, figures, mean.effective_size, None, remarks))
    return found


def _asked(
    name: str, names: Sequence[str], make: Callable[[], Estimate], *, sampled: bool = True
) -> list[Opinion]:
    """What an estimator says of each return, or why it says nothing."""
    try:
        estimate = make()
    except REFUSALS as refusal:
        return [Opinion(name, one, {}, 0.0, str(refusal)) for one in names]
    why = None
    if estimate.effective_size < LEAST_EFFECTIVE:
        why = (
            f"it rests on {estimate.effective_size:.3g} episodes, and a tenth of them says nothing"
        )
    return [
        Opinion(
            name,
            one,
            _figures(estimate, place),
            estimate.effective_size,
            why,
            estimate.remarks,
            sampled,
        )
        for place, one in enumerate(names)
    ]


def _importance(plan: Plan, evaluation: Evaluation | None, names: Sequence[str]) -> list[Opinion]:
    """By weighted episodes, where propensities are known or estimated."""
    whole, by_decision = "weighted importance sampling", "per-decision importance sampling"
    try:
        episodes = WeightedEpisodes.of(plan, _propensities(plan))
        _require_same_starts(plan)
        if evaluation is None:
            _require_ends(episodes)
    except REFUSALS as refusal:
        labels = (whole, by_decision) if evaluation is None else (whole, by_decision, ROBUST)
        return [Opinion(label, n, {}, 0.0, str(refusal)) for label in labels for n in names]
    size = episodes.weights.effective_sizes[-1]
    # Where nothing is left of the weights, a critic need not say what follows.
    critic = evaluation if size >= LEAST_EFFECTIVE else None
    opinions = _asked(whole, names, lambda: weighted_importance_sampling(episodes, critic=critic))
    known = plan.data.propensities is not None or plan.target.coverage is None
    if known and not episodes.cut.any():
        opinions = [replace(one, model_free=True) for one in opinions]
    opinions += _asked(
        by_decision,
        names,
        lambda: weighted_per_decision_importance_sampling(episodes, critic=critic),
    )
    if evaluation is not None:
        opinions += _asked(ROBUST, names, _corrected(episodes, evaluation), sampled=False)
    return opinions


def _corrected(episodes: WeightedEpisodes, evaluation: Evaluation) -> Callable[[], Estimate]:
    """Doubly robust on some of the episodes, as far as weights can be followed.

    Where there are replicates, an episode is judged by those that were not fitted to it.
    """

    def make() -> Estimate:
        chosen = short = shortened(episodes, LEAST_EFFECTIVE)
        number = episodes.number
        # Fewer episodes can be followed less far: halved until the critic can be asked about all
        # rows.
        while short is not None and len(short.rows) > CRITIC_ROWS:
            number //= 2
            short = shortened(_some(episodes, number), LEAST_EFFECTIVE)
            chosen = short or chosen
        if chosen is None:
            raise DataError(
                f"weights leave {episodes.weights.effective_sizes[0]:.3g} episodes after one step"
            )
        critics = Critics.out_of_bag(episodes.plan, evaluation)
        found = doubly_robust(chosen, critics or evaluation, draws=CRITIC_DRAWS)
        fitted = IN_SAMPLE if critics is None else OUT_OF_BAG
        return replace(found, remarks=(*found.remarks, fitted))

    return make


def _some(episodes: WeightedEpisodes, most: int) -> WeightedEpisodes:
    """As many of the episodes, evenly over the log."""
    if most >= episodes.number:
        return episodes
    chosen = np.unique(np.linspace(0, episodes.number - 1, max(most, 2)).astype(int))
    weights = episodes.weights
    kept = np.isin(weights.episodes, chosen)
    part = StepWeights(
        np.searchsorted(chosen, weights.episodes[kept]),
        weights.steps[kept],
        weights.products[kept],
        weights.lengths[chosen],
    )
    return replace(
        episodes,
        rows=episodes.rows[kept],
        weights=part,
        opening=episodes.opening.at(chosen),
        cut=episodes.cut[chosen],
        before=episodes.before[kept],
        after=episodes.after[kept],
    )


def _propensities(plan: Plan) -> LoggingPolicy | None:
    """Good enough to be multiplied; None where none are needed, or the log has them."""
    data = plan.data
    if plan.target.coverage is None or data.propensities is not None:
        return plan.logging
    known, actions = plan.logging, data.number_of_actions
    if known is None:
        counted = data.number_of_observations is not None and actions is not None
        # A fit in closed form takes less than a network would.
        worth = plan.cost.steps > 0 and len(data) >= ROWS_FOR_COUPLING
        few = actions is None or actions <= MOST_COUPLED
        if not counted and not (worth and few):
            least = ROWS_FOR_COUPLING
            if len(data) < least:
                why = f"{len(data):,} rows are too few to estimate them (from {least:,} on)"
            elif not few:
                why = f"{actions} actions are too many to estimate them (at most {MOST_COUPLED})"
            else:
                why = "to estimate them would take longer than this fit in closed form"
            raise DataError(f"no propensities were logged, and {why}")
        known = logging_policy(data)
    if not known.reliable:
        raise DataError(f"propensities are not good enough to be multiplied: {known.in_words()}")
    return known


def _require_ends(episodes: WeightedEpisodes) -> None:
    """Refuse episodes whose return goes on, where nothing says how."""
    if not episodes.cut.any():
        return
    discounts = episodes.plan.problem.gamma ** episodes.weights.lengths[episodes.cut]
    if discounts.sum() > NEGLIGIBLE * episodes.number:
        raise DataError(
            f"{int(episodes.cut.sum()):,} of {episodes.number:,} episodes were cut off where what"
            f" follows has a discount of {discounts.mean():.2g}"
        )


def _require_same_starts(plan: Plan) -> None:
    """Refuse initial observations that are not of the law that logged episodes start from."""
    data = plan.data
    if data.episodes is None:
        return
    logged = data.observations[starts_episode(data.episodes)]
    given = data.require_initial_observations()
    if logged.shape == given.shape and np.array_equal(logged, given):
        return
    if not _alike(logged.astype(float), given.astype(float)):
        raise DataError("the initial observations are not such as logged episodes start from")


def _alike(logged: FloatArray, given: FloatArray) -> bool:
    """Whether two samples may be of one law: by their counts, or by means and squares."""
    if logged.ndim == 1:
        codes = np.unique(np.concatenate([logged, given]))
        first, second = (
            np.bincount(np.searchsorted(codes, part), minlength=len(codes))
            for part in (logged, given)
        )
        total, share = first + second, len(logged) / (len(logged) + len(given))
        statistic = np.sum((first - share * total) ** 2 / (share * (1 - share) * total))
        return bool(chi2.sf(statistic, max(len(codes) - 1, 1)) > OTHER_STARTS)
    centre, scale = given.mean(axis=0), given.std(axis=0) + 1e-12
    parts = [np.hstack([z, z**2]) for z in ((logged - centre) / scale, (given - centre) / scale)]
    errors = np.sqrt(sum(part.var(axis=0) / len(part) for part in parts)) + 1e-9
    score = np.abs(parts[0].mean(axis=0) - parts[1].mean(axis=0)) / errors
    return bool(score.max() < norm.isf(OTHER_STARTS / (2 * parts[0].shape[1])))


def _with_mean_like(opinion: Opinion, opinions: Sequence[Opinion], mean: Figure) -> Opinion:
    """Stitching has a bias that its errors do not know: its mean must be that of fitted Q.

    Or that of the opinion which refutes fitted Q.
    """
    if opinion.estimator != "stitching" or not opinion.sees:
        return opinion
    whose = next(
        one
        for one in opinions
        if one.estimator == FITTED_Q and one.coordinate == opinion.coordinate
    )
    better = refuting(whose, opinions)
    if better is not None:
        whose, mean = better, better.figures["mean"]
    theirs = opinion.figures["mean"]
    apart = abs(theirs.value - mean.value)
    joint = np.hypot(theirs.standard_error or 0.0, mean.standard_error or 0.0)
    if apart <= max(APART * joint, NEARLY * opinion.figures["std"].value):
        # Its mean was a condition, and is no further evidence.
        others = {asked: figure for asked, figure in opinion.figures.items() if asked != "mean"}
        remark = f"its mean, {theirs.value:.4g}, is like that of {whose.estimator}"
        return replace(opinion, figures=others, remarks=(*opinion.remarks, remark))
    why = (
        f"its mean, {theirs.value:.4g}, is not that of {whose.estimator}, {mean.value:.4g}: rows"
        " are too far apart"
    )
    return replace(opinion, cannot_see=why)
