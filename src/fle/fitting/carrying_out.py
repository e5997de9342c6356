"""A plan carried out: the loop, its replicates, and what is asked of the result."""

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from fle.data.passes import require_memory
from fle.errors import FLEError, FLEWarning
from fle.fitting.bellman import bellman_errors
from fle.fitting.evaluation import Evaluation
from fle.fitting.loop import Keeper
from fle.fitting.progress import Progress, default_progress
from fle.fitting.remarks import unsettled
from fle.fitting.replicates import RefitKeeper, Resampling, replicates
from fle.fitting.visits import Visits
from fle.screen import doing

if TYPE_CHECKING:
    from fle.fitting.plans import Plan


def fitted(
    planned: "Plan",
    keeper: Keeper,
    refit_keeper: RefitKeeper,
    progress: Progress | None,
    known: Evaluation | None,
    anyway: bool,
) -> Evaluation:
    """The evaluation of a plan, with all that was asked beside its fits."""
    loop = planned.loop()
    progress = progress or default_progress()
    state = loop.run(keeper, progress)
    refits = None
    if planned.interval is not None:
        resampling = Resampling.of(planned.data)
        shared = None if known is None else known.refits
        fits = replicates(loop, state, resampling, planned.interval, refit_keeper, progress, shared)
        refits = fits.starting_from(resampling, planned.initial_starts)
    reservations = state.warnings
    if planned.problem.horizon is None:
        reservations += unsettled(state.records)
    for remark in reservations:
        warnings.warn(remark, FLEWarning, stacklevel=2)
    evaluation = Evaluation(
        problem=planned.problem,
        model=planned.model,
        recipe=planned.recipe,
        records=state.records,
        notes=(*planned.notes, *state.notes),
        warnings=(*planned.warnings, *reservations),
        return_names=planned.data.reward_names,
        encoder=planned.encoder,
        fits=state.fits,
        initial_inputs=planned.initial_inputs,
        initial_weights=planned.initial_weights,
        logged=planned.logged,
        coverage=planned.target.coverage,
        provenance=planned.provenance,
        refits=refits,
        visits=None if planned.occupancy is None else Visits.of(planned.data, planned.occupancy),
        bellman=bellman_errors(planned, state.fits, planned.is_trained),
        released=True,
    )
    if planned.second_opinions:
        evaluation = with_second_opinions(planned, evaluation)
    if planned.calibration:
        evaluation = with_calibration(planned, evaluation)
    evaluation = replace(evaluation, released=anyway)
    if planned.growth is None:
        return evaluation
    return replace(evaluation, notes=(*evaluation.notes, *planned.growth.moved(evaluation)))


def with_second_opinions(planned: "Plan", evaluation: Evaluation) -> Evaluation:
    """An evaluation beside what other estimators say, with a warning where they disagree."""
    from fle.baselines.second_opinions import memory_of_opinions, second_opinions_of

    try:
        require_memory(memory_of_opinions(planned), "Second opinions", len(planned.data))
    except FLEError as refusal:
        return replace(evaluation, notes=(*evaluation.notes, f"no second opinions: {refusal}"))
    with doing("asking for second opinions"):
        opinions = second_opinions_of(planned, evaluation)
    for remark in opinions.warnings:
        warnings.warn(remark, FLEWarning, stacklevel=3)
    return replace(
        evaluation,
        second_opinions=opinions,
        warnings=(*evaluation.warnings, *opinions.warnings),
    )


def with_calibration(planned: "Plan", evaluation: Evaluation) -> Evaluation:
    """An evaluation beside predictions of held-out episodes, or why there can be none."""
    from fle.baselines.critics import calibration_of

    try:
        found = calibration_of(planned)
    except FLEError as refusal:
        return replace(evaluation, notes=(*evaluation.notes, f"no calibration: {refusal}"))
    return replace(evaluation, calibration=found)
