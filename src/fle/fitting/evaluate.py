"""`fle.evaluate`: logged data and a target policy in, an Evaluation out."""

import os
import warnings
from dataclasses import asdict, replace

import numpy as np

from fle.data import Dataset
from fle.errors import FLEWarning, SettingsError
from fle.fitting.bellman import BellmanLoop
from fle.fitting.checkpoints import Keeper, NothingKept, Resume
from fle.fitting.choosing import chosen_model
from fle.fitting.encoding import Encoder
from fle.fitting.evaluation import Evaluation
from fle.fitting.progress import Progress, default_progress
from fle.fitting.provenance import LoggedData, Provenance, current_versions
from fle.fitting.remarks import data_remarks, ends_at
from fle.fitting.run_directory import begin_run
from fle.fitting.sampling import SAMPLE_BLOCK
from fle.fitting.settings import Training
from fle.fitting.specs import as_plain, spec_as_plain
from fle.fitting.stages import (
    NEGLIGIBLE,
    RowUse,
    discounted_stages,
    finite_horizon_stages,
    number_of_stages,
)
from fle.models import ModelSpec
from fle.models.base import Tuning
from fle.policies import ActionTable, Policy, settle, tabulated


def evaluate(
    data: Dataset,
    policy: Policy,
    *,
    gamma: float | None = None,
    horizon: int | None = None,
    model: str | ModelSpec = "auto",
    rows: RowUse | None = None,
    stages: int | None = None,
    training: Training | None = None,
    action_draws: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: Resume = "latest",
) -> Evaluation:
    """Estimate the distribution of the target policy's return from logged data.

    Args:
        data: the logged transitions.
        policy: the target policy, as any function from observations to probabilities or actions.
        gamma: discount factor. Without a horizon it must be below 1.
        horizon: number of steps of an episode; the return is then finite, and undiscounted unless
            gamma is given too.
        model: "auto", which chooses by the dimension of the return and the number of rows; a name
            ("gmm", "autoregressive", "flow", "diffusion", "histogram", "gaussian", "categorical",
            "quantile"); or hyperparameters such as `GMM(components=20)`.
        rows: "all" lets every row serve every stage, "step" uses a row at its own step only, and
            "split" gives each stage rows of its own, as the theory does. Default: "step" if the
            data has step indices and a horizon is given, else "all".
        stages: number of stages of a discounted problem; chosen from gamma and the data if None.
        training: settings of the optimiser; see `Training`.
        action_draws: actions drawn at every next observation from a policy that is given as a
            sampler.
        seed: everything random follows from it; the same seed gives identical results.
        progress: told of every stage. Default: a bar on a terminal, nothing in a pipe.
        out: a run directory, for `fle.load`. A run that was stopped, in whatever way, goes on there
            when the same call is repeated, and its result is the same to the last bit; a finished
            one is loaded.
        resume: "latest" goes on from the last checkpoint; "previous" from the one before, should
            the last one, or the result, be damaged.
    """
    gamma = _checked_gamma(gamma, horizon)
    given = data
    notes = list(data.notes)
    messages = list(data.warnings)
    # Before rows are left out, since the log's own policy is read off the following rows.
    settled = settle(policy, data, seed=seed)
    if data.weights is not None and np.any(data.weights == 0):
        data = data.subset(data.weights > 0)
    if rows is None and horizon is not None and data.steps is None and ends_at(data, horizon):
        data = data.with_steps()
        notes.append(
            f"every logged episode terminates after {horizon} steps, which is the horizon: what an "
            'observation is worth depends on the step, and rows are used at their own (rows="step")'
        )
    use: RowUse = rows or ("step" if data.steps is not None and horizon is not None else "all")
    if use not in ("all", "step", "split"):
        raise SettingsError(f'rows must be "all", "step" or "split", got {rows!r}.')
    spec = chosen_model(model, data, notes)
    if horizon is None:
        stages = _checked_stages(stages, data, gamma, notes)
    elif stages is not None:
        raise SettingsError("stages is for discounted problems; with a horizon it is given.")
    if training is None:
        training = Training.discounted(stages, data) if stages else Training.finite_horizon()
        training = training.tuned(getattr(spec, "tuning", Tuning()))
    training = _fit_batch(training, data, notes)
    if horizon is not None and gamma < 1:
        notes.append(f"returns are discounted by {gamma:g} and end after {horizon} steps")
    target = tabulated(settled, data, draws=action_draws, seed=seed)
    _warn_of(list(target.remarks), messages)
    encode = Encoder.standardising if spec.standardised else Encoder.raw
    encoder = encode(data, discounted=stages is not None and stages > 1)
    _warn_of(data_remarks(data, encoder, horizon, use), messages)

    generator = np.random.default_rng([seed, 0])
    share = training.held_out
    if horizon is not None:
        plan = finite_horizon_stages(data, horizon, gamma, use, share, generator)
    else:
        plan = discounted_stages(data, stages or 1, gamma, use, share, generator)
    initial_inputs, initial_weights = _initial_inputs(data, target.initial, encoder)
    probe = initial_inputs[generator.choice(len(initial_weights), SAMPLE_BLOCK, p=initial_weights)]
    loop = BellmanLoop(
        spec, encoder, encoder.rows(data, target.following), data.weights, probe, training, seed
    )
    provenance = Provenance(
        data=given.fingerprint,
        policy=target.fingerprint,
        seed=int(seed),
        settings={
            "gamma": as_plain(gamma),
            "horizon": as_plain(horizon),
            "model": spec_as_plain(spec),
            "rows": use,
            "stages": as_plain(stages),
            "training": {name: as_plain(value) for name, value in asdict(training).items()},
            "action_draws": as_plain(action_draws),
        },
        versions=current_versions(),
    )

    def fitted(keeper: Keeper) -> Evaluation:
        state = loop.run(plan, horizon or 1, keeper, progress or default_progress())
        return Evaluation(
            gamma=gamma,
            horizon=horizon,
            model=spec,
            records=state.records,
            notes=(*notes, *state.notes),
            warnings=tuple(messages),
            return_names=data.reward_names,
            encoder=encoder,
            fits=state.fits,
            initial_inputs=initial_inputs,
            initial_weights=initial_weights,
            logged=LoggedData.of(given, gamma, horizon),
            coverage=target.coverage,
            provenance=provenance,
        )

    if out is None:
        return fitted(NothingKept())
    with begin_run(out, provenance, spec, resume) as run:
        if run.finished:
            return run.result(spec)
        _warn_of(run.remarks, messages)
        evaluation = fitted(run.checkpoints)
        run.finish(evaluation)
    return evaluation


def _checked_gamma(gamma: float | None, horizon: int | None) -> float:
    if horizon is not None and (horizon < 1 or horizon != int(horizon)):
        raise SettingsError(f"horizon must be a whole number of at least 1, got {horizon!r}.")
    if gamma is None:
        if horizon is None:
            raise SettingsError("Give gamma (below 1) or horizon, or both; neither was given.")
        return 1.0
    if not 0 <= gamma <= 1:
        raise SettingsError(f"gamma must lie in [0, 1], got {gamma!r}.")
    if gamma == 1 and horizon is None:
        raise SettingsError(
            "gamma = 1 without a horizon has no finite return in general. Give a horizon, or a "
            "gamma below 1."
        )
    return float(gamma)


def _fit_batch(training: Training, data: Dataset, notes: list[str]) -> Training:
    """A batch need not be larger than the data."""
    if training.batch_size <= len(data):
        return training
    notes.append(f"batch size {len(data)}: all rows there are")
    return replace(training, batch_size=len(data))


def _checked_stages(stages: int | None, data: Dataset, gamma: float, notes: list[str]) -> int:
    enough, reason = number_of_stages(data, gamma)
    if stages is None:
        stages = enough
        notes.append(reason)
    if stages < 1:
        raise SettingsError(f"stages must be at least 1, got {stages}.")
    if stages < enough:
        notes.append(
            f"{stages} stages: rewards after as many steps are left out, and weigh up to "
            f"{NEGLIGIBLE * gamma ** (stages - enough):.2g} standard deviations of the return; "
            f"{enough} stages would leave {NEGLIGIBLE:g}"
        )
    return stages


def _initial_inputs(
    data: Dataset, table: ActionTable, encoder: Encoder
) -> tuple[np.ndarray, np.ndarray]:
    """Every initial observation with every action the policy may take, and their weights."""
    observations = np.repeat(data.require_initial_observations(), table.candidates, axis=0)
    actions = table.actions.reshape(len(observations), *table.actions.shape[2:])
    weights = table.probabilities.reshape(-1) / len(table)
    likely = weights > 0
    return encoder.inputs(observations[likely], actions[likely]), weights[likely]


def _warn_of(remarks: list[str], messages: list[str]) -> None:
    for remark in remarks:
        warnings.warn(remark, FLEWarning, stacklevel=3)
        messages.append(remark)
