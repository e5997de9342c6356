"""What a plan decides: the recipe, the table of the policy, targets, stages and rows."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fle.data import Dataset
from fle.data.passes import require_memory
from fle.fitting.behaviour import LoggingPolicy
from fle.fitting.encoding import Encoder
from fle.fitting.evaluation import LoggedData, Provenance
from fle.fitting.following import Coupling, Trail, discrete_coupling, linked_rows, normal_coupling
from fle.fitting.model_choice import chosen_model, has_quadratic_trend, suggested
from fle.fitting.occupancy import Occupancy, occupancy
from fle.fitting.plans import Plan, planned_memory
from fle.fitting.problem import Problem, Question, chosen_stages, stages_of
from fle.fitting.remarks import data_remarks
from fle.fitting.replicates import Resampling
from fle.fitting.runs import continued_encoder
from fle.fitting.targets import SAMPLE_BLOCK, Purpose, Randomness
from fle.models.objectives import GradientObjective
from fle.models.specs import ModelSpec, as_plain
from fle.policies import ActionTable, TabulatedPolicy
from fle.policies.answers import by_action
from fle.recipe import (
    FIRST_LOOK,
    NEGLIGIBLE,
    ONE_FIT,
    QUICK_LEFT,
    Recipe,
    Resolved,
    first_look,
    resolve,
    usual,
)
from fle.returns.intervals import Interval

if TYPE_CHECKING:
    from fle.fitting.planning import Planner

# Fewer rows tell too little of what was logged with which probability; more actions take too much
# memory.
ROWS_FOR_COUPLING, MOST_COUPLED = 10_000, 32
# Standard deviations of rewards from which on their mean is taken out: float32 has seven digits.
LARGE_OFFSET = 100.0


class Shape(NamedTuple):
    """What the programs of several policies have in common, so that they are compiled once.

    stages: of every fit. actions: listed for every row; None leaves them as a policy gives them.
    """

    stages: int
    actions: int | None


class Decisions(NamedTuple):
    """What is decided, and why."""

    problem: Problem
    data: Dataset
    model: ModelSpec
    recipe: Resolved
    encoder: Encoder
    table: ActionTable
    trail: Trail
    notes: tuple[str, ...]
    logging: LoggingPolicy | None

    def as_plain(self) -> dict[str, Any]:
        """All settings, as files hold them."""
        problem = {name: as_plain(value) for name, value in asdict(self.problem).items()}
        recipe = {name: as_plain(value) for name, value in asdict(self.recipe).items()}
        return {**problem, "model": self.model.as_plain(), "recipe": recipe}


def decided(planner: "Planner", target: TabulatedPolicy) -> Decisions:
    """What is decided, if there is memory for it."""
    used, notes = planner.data, list(planner.notes)
    needed = planned_memory(len(used), target.following.candidates)
    require_memory(needed, "The plan", len(used))
    spec, why = chosen_model(planner.model, used, planner.question)
    if planner.model == "auto":
        why += suggested(used, planner.question, target)
    return _decide(planner, target, spec, notes + why)


def _decide(
    planner: "Planner", target: TabulatedPolicy, spec: ModelSpec, notes: list[str]
) -> Decisions:
    data, question, asked, shape = planner.data, planner.question, planner.asked, planner.shape
    gamma, horizon, use, stages, quick = question
    trace = _possible_trace(spec, asked, question, notes)
    encoder = Encoder.raw(data)
    if spec.standardised:
        encoder = Encoder.standardising(
            data, _reward_offset(data, question), codes=spec.reads_codes
        )
    if planner.earlier is not None:
        encoder = continued_encoder(planner.earlier, data, encoder)
    table, coupling, logging = _coupled(planner, target, trace, notes)
    trail = Trail.of(data, table, encoder.rewards(data), gamma, trace, coupling)
    left = QUICK_LEFT if quick else NEGLIGIBLE
    number, why = chosen_stages(stages, horizon, data, gamma, trail, left)
    if shape is not None and shape.stages != number:
        why = (f"{shape.stages} stages, as the policy of the comparison that needs most",)
        number = shape.stages
    problem = Problem(gamma, horizon, use, number)
    chosen = _usual_recipe(problem, data, spec)
    if quick:
        chosen = first_look(chosen, stages=number, tuning=spec.usual_tuning)
    if spec.has_trend and not chosen.trend and asked.trend is None:
        chosen, why = _with_trend(planner, target, chosen, why)
    recipe = replace(resolve(asked, chosen), trace=trace)
    notes = [*notes, *why]
    if recipe.batch_size > len(data):
        recipe = replace(recipe, batch_size=len(data))
        notes.append(f"batch size {len(data)}: all rows there are")
    if horizon is not None and gamma < 1:
        notes.append(f"returns are discounted by {gamma:g} and end after {horizon} steps")
    return Decisions(problem, data, spec, recipe, encoder, table, trail, tuple(notes), logging)


def _with_trend(
    planner: "Planner", target: TabulatedPolicy, chosen: Resolved, why: tuple[str, ...]
) -> tuple[Resolved, tuple[str, ...]]:
    """With a quadratic trend where Q is quadratic [0042]; as before, where a log has grown."""
    if planner.earlier is not None:
        return replace(chosen, trend=planner.earlier.recipe.trend), why
    if planner.question.quick or not has_quadratic_trend(planner.data, planner.question, target):
        return chosen, why
    note = "a quadratic trend beside the network, as the log has nothing against a quadratic Q"
    return replace(chosen, trend=True), (*why, note)


def _reward_offset(data: Dataset, question: Question) -> np.ndarray:
    """(d,) A large constant in rewards, where its part in the return is known: none ends early."""
    mean, spread = data.rewards.mean(axis=0), data.rewards.std(axis=0)
    ends = data.terminations
    if question.rows == "step" and data.steps is not None and question.horizon is not None:
        ends = ends & (data.steps < question.horizon - 1)
    known = question.horizon == 1 or not ends.any()
    return np.where(known & (np.abs(mean) > LARGE_OFFSET * spread), mean, 0.0)


def _possible_trace(spec: ModelSpec, asked: Recipe, question: Question, notes: list[str]) -> float:
    """How readily targets follow the log, which not every model and use of rows can do."""
    trace = ONE_FIT.trace if asked.trace is None else asked.trace
    objective = spec.fitted_by(resolve(asked, ONE_FIT))
    several = question.horizon is not None and question.horizon > 1
    if question.rows == "split":
        reason = "rows of one stage would be seen by another"
    elif objective.measured_by is not objective:
        reason = f"{type(spec).__name__} is fitted at once to exact targets"
    elif several and objective.measured_by.across_fits() is None:
        reason = f"{type(spec).__name__} asks one fit at a time"
    else:
        return trace
    if trace > 0 and question.horizon != 1:
        notes.append(f"targets look one step ahead: {reason}")
    return 0.0


def _coupled(
    planner: "Planner", target: TabulatedPolicy, trace: float, notes: list[str]
) -> tuple[ActionTable, Coupling | None, LoggingPolicy | None]:
    """The policy's next actions, and their coupling with what was logged, if that can be told."""
    data, shape = planner.data, planner.shape
    table, actions = target.following, data.number_of_actions
    if shape is not None and shape.actions is not None and not table.lists_all(shape.actions):
        shares = by_action(table.actions, table.probabilities, shape.actions)
        table = ActionTable.of_probabilities(shares)
    told = data.propensities is not None or data.number_of_observations is not None
    possible = table.normal is not None if actions is None else actions <= MOST_COUPLED
    enough = (told and actions is not None) or len(data) >= ROWS_FOR_COUPLING
    if trace == 0 or target.coverage is None or not possible or not enough:
        return table, None, None
    if not linked_rows(data).any():
        return table, None, None
    logging = planner.facts.logging
    notes.append(logging.in_words())
    if not logging.reliable:
        notes.append(
            "not good enough to couple it with the policy: actions must agree by themselves"
        )
        return table, None, logging
    if actions is None:
        return table, normal_coupling(data, table, logging.next_densities), logging
    if not table.lists_all(actions):
        shares = by_action(table.actions, table.probabilities, actions)
        table = ActionTable.of_probabilities(shares)
    after = np.asarray(logging.next_probabilities)
    return table, discrete_coupling(data, table.probabilities, after), logging


def _usual_recipe(problem: Problem, data: Dataset, spec: ModelSpec) -> Resolved:
    coordinates = sum(
        1 if values.ndim == 1 else values.shape[1] for values in (data.observations, data.actions)
    )
    return usual(
        repeats=problem.repeats,
        rows=len(data),
        coordinates=coordinates,
        tuning=spec.usual_tuning,
    )


def plan_of(
    decisions: Decisions,
    target: TabulatedPolicy,
    logged: LoggedData,
    provenance: Provenance,
    interval: Interval | None,
    second_opinions: bool,
) -> Plan:
    """All of it, with the stages, the weights of rows and the initial inputs."""
    problem, data, spec, recipe, encoder, table, trail, notes, logging = decisions
    remarks = data_remarks(data, encoder, problem.horizon, problem.rows)
    generator = Randomness(provenance.seed, Purpose.PLAN).generator
    stages = stages_of(problem, data, recipe, generator)
    if not isinstance(spec.fitted_by(recipe), GradientObjective):
        # What is solved at once has nothing to choose by rows that it does not see.
        stages = tuple(stage.with_all_rows() for stage in stages)
    inputs, shares, starts = _initial_inputs(data, target, encoder)
    visited = _occupancy(data, target, problem, recipe)
    used = visited is not None and visited.worthwhile
    weights = visited.weights if visited is not None and used else data.weights
    why = (visited.in_words(),) if visited is not None and used else ()
    interval, provenance, remark = _possible_interval(interval, data, provenance)
    notes = (*notes, *why, *remark)
    looked = (FIRST_LOOK,) if provenance.settings.get("quick") else ()
    return Plan(
        problem=problem,
        data=data,
        target=target,
        model=spec,
        recipe=recipe,
        encoder=encoder,
        following=table,
        trail=trail,
        weights=weights,
        stages=stages,
        initial_inputs=inputs,
        initial_weights=shares,
        initial_starts=starts,
        probe=inputs[generator.choice(len(shares), SAMPLE_BLOCK, p=shares)],
        logged=logged,
        provenance=provenance,
        notes=notes,
        warnings=(*data.warnings, *looked, *target.remarks, *remarks),
        logging=logging,
        occupancy=visited,
        interval=interval,
        second_opinions=second_opinions,
        calibration="calibration" in provenance.settings,
    )


def _occupancy(
    data: Dataset, target: TabulatedPolicy, problem: Problem, recipe: Resolved
) -> Occupancy | None:
    """Where the policy goes, if that can be told and is of use."""
    one_step = problem.horizon == 1
    if not recipe.occupancy or one_step or target.coverage is None or problem.rows == "split":
        return None
    return occupancy(data, target, gamma=problem.gamma, horizon=problem.horizon)


def _possible_interval(
    asked: Interval | None, data: Dataset, provenance: Provenance
) -> tuple[Interval | None, Provenance, tuple[str, ...]]:
    """The intervals that the data can have, what a run remembers of them, and what to know."""
    if asked is None:
        return None, provenance, ()
    resampling = Resampling.of(data)
    if resampling.impossible is not None:
        return None, provenance, (resampling.impossible,)
    settings = provenance.settings | {"interval": asdict(asked)}
    return asked, replace(provenance, settings=settings), resampling.notes()


def _initial_inputs(
    data: Dataset, target: TabulatedPolicy, encoder: Encoder
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every initial observation with every action the policy may take, their weights, and which
    observation each is.
    """
    table = target.initial
    observations = np.repeat(data.require_initial_observations(), table.candidates, axis=0)
    actions = table.actions.reshape(len(observations), *table.actions.shape[2:])
    weights = table.probabilities.reshape(-1) / len(table)
    likely = weights > 0
    needed = 4.0 * likely.sum() * encoder.sizes.inputs
    require_memory(needed, "The initial observations, as one-hot vectors,", len(table))
    inputs = encoder.inputs(observations[likely], actions[likely])
    return inputs, weights[likely], np.flatnonzero(likely) // table.candidates
