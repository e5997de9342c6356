"""Many plans as jobs: what each computes, the run directory it has, and who carries them out."""

import dataclasses
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fle.data.passes import ceiling, memory_ceiling
from fle.errors import CoverageError, FLEError, FLEWarning, SettingsError, TrainingError
from fle.executors import Executor, Job, JobsFile
from fle.files import BusyError, make_directory, plain_json, require_own_directory
from fle.fitting.checkpoints import Checkpoints, Resume, replicate_file, stage_file
from fle.fitting.evaluation import Evaluation, Provenance, current_versions
from fle.fitting.loop import LoopState
from fle.fitting.plan_files import PlanWriter, read_plan
from fle.fitting.plans import Plan
from fle.fitting.replicates import Resampling, refit, warm_loop
from fle.fitting.runs import CHECKPOINTS, begin_run, has_result
from fle.screen import Progress, Silent, Titled, default_progress

Name = TypeVar("Name", bound=Hashable)
Out = Mapping[Any, str | os.PathLike[str]] | str | os.PathLike[str] | None
JOBS = ".jobs"
# How long a job waits for a process that is still writing to its directory: one whose machine was
# given up, or one that another call started.
BUSY_SECONDS, BETWEEN = 600.0, 0.5
# Plans that a process keeps, since jobs that come next are often of the same one.
MOST_AT_HAND = 2


def carry_out(
    plans: Mapping[Name, Plan],
    *,
    executor: Executor | None = None,
    anyway: bool = False,
    progress: Progress | None = None,
    out: Out = None,
    resume: Resume = "latest",
) -> dict[Name, Evaluation]:
    """Carry out any plans, of several policies or seeds, say, here or as jobs of an executor.

    Every fit is a job, and so is every fit to resampled episodes, where there are intervals. Jobs
    are found by what they compute: one that is finished is never run again, whatever the call.

    Args:
        plans: by name, as of `fle.plan`.
        executor: who carries out the jobs, of `fle.executors`; None does so one after another in
            this process. The result is the same, bit for bit, on machines of one kind.
        anyway, progress, resume: as of `fle.evaluate`.
        out: a folder, in which every plan gets a run directory of its name, or those by name.

    Example: `fle.carry_out({seed: fle.plan(data, policy, gamma=0.9, seed=seed) for seed in
    range(5)}, executor=fle.executors.Processes(2))`.
    """
    folders = {name: run_folder(out, name) for name in plans}
    if executor is None:
        several = len(plans) > 1
        return {
            name: plan.carry_out(
                anyway=anyway,
                progress=Titled(str(name), progress or default_progress()) if several else progress,
                out=folders[name],
                resume=resume,
            )
            for name, plan in plans.items()
        }
    for name, plan in plans.items():
        if plan.withheld is not None and not anyway:
            raise CoverageError(f"No estimate for {name}: {plan.withheld}.")
        plan.model.require_plain()
    # A finished run is there already, or refuses a plan that is not its own.
    ready = [n for n, to in folders.items() if to and resume == "latest" and has_result(Path(to))]
    found = {name: plans[name].carry_out(anyway=anyway, out=folders[name]) for name in ready}
    left = {name: plan for name, plan in plans.items() if name not in found}
    with _jobs_folder(executor, out, len(plans)) as folder:
        for name, directory in _Work(folder, left, executor, progress or default_progress()).done():
            found[name] = _gathered(left[name], directory, folders[name], resume, anyway)
    return {name: found[name] for name in plans}


class Handling(NamedTuple):
    """How plans are carried out: the arguments of `carry_out` beside the plans."""

    executor: Executor | None = None
    anyway: bool = False
    progress: Progress | None = None
    out: Any = None
    resume: Resume = "latest"


def carried_out(plan: Plan, how: Handling) -> Evaluation:
    """The same of one plan, whose run directory is `how.out`."""
    folders = None if how.out is None else {"evaluation": how.out}
    return carry_out({"evaluation": plan}, **how._replace(out=folders)._asdict())["evaluation"]


def run_folder(out: Out, name: Any) -> str | os.PathLike[str] | None:
    """The run directory of one of several plans."""
    if isinstance(out, Mapping):
        return out[name]
    return None if out is None else Path(out) / str(name)


@contextmanager
def _jobs_folder(executor: Executor, out: Out, number: int) -> Iterator[Path]:
    """Where the jobs are: as the executor says, inside of `out`, or for the time being."""
    given = executor.folder
    if given is None and out is not None:
        first = Path(next(iter(out.values()))) if isinstance(out, Mapping) else Path(out)
        given = first.parent / JOBS if isinstance(out, Mapping) and number > 1 else first / JOBS
    if given is not None:
        make_directory(Path(given))
        yield Path(given)
        return
    if executor.shared:
        raise SettingsError(
            f"{type(executor).__name__} needs a folder that all machines see. Give its `folder`, "
            "or `out`."
        )
    with tempfile.TemporaryDirectory(prefix="fle-jobs-") as folder:
        yield Path(folder)


class _Work:
    """The jobs of some plans: fits, then fits to resampled episodes, then the rest."""

    def __init__(
        self, folder: Path, plans: Mapping[Any, Plan], executor: Executor, progress: Progress
    ):
        self._folder, self._executor, self._progress = folder, executor, progress
        writer = PlanWriter(folder)
        self._jobs = {n: jobs_of(plan, str(n), writer.write(plan)) for n, plan in plans.items()}

    def done(self) -> list[tuple[Any, Path]]:
        """Run what is not finished; the run directory of every plan."""
        left: dict[str, Job] = {}
        for *before, last in self._jobs.values():
            if not is_finished(last, self._folder):
                unfinished = [job for job in before if not is_finished(job, self._folder)]
                # Plans that share what they compute share the job.
                left |= {job.key: job for job in (*unfinished, last)}
        if left:
            self._run(list(left.values()))
        return [(name, self._folder / jobs[-1].key) for name, jobs in self._jobs.items()]

    def _run(self, jobs: list[Job]) -> None:
        written = JobsFile.write(self._folder, jobs, ceiling())
        failed = []
        self._progress.start(len(jobs), "jobs")
        try:
            for number, outcome in enumerate(self._executor.run(written), start=1):
                if outcome.path is None:
                    failed.append(f"{jobs[outcome.number].name}: {outcome.error}")
                self._progress.advance(number, float("nan"))
        finally:
            self._progress.finish()
        if failed:
            raise TrainingError(
                f"{len(failed)} of {len(jobs)} jobs failed; the others are finished, and a call "
                "with the same folder does not run them again. " + " ".join(failed)
            )


def _gathered(plan: Plan, directory: Path, out: Any, resume: Resume, anyway: bool) -> Evaluation:
    """The evaluation that a job wrote, with what is to be known about it, written to `out` too."""
    evaluation = plan.carry_out(anyway=True, out=directory, progress=Silent())
    evaluation = dataclasses.replace(evaluation, released=anyway)
    if out is not None:
        with begin_run(out, plan.provenance, plan.model, resume) as run:
            run.finish(evaluation)
    return evaluation


def jobs_of(plan: Plan, name: str, file: str) -> list[Job]:
    """The jobs of a plan; the last is the one whose result is the plan's."""
    own = job_key(plan)
    if plan.interval is None:
        return [Job(own, name, "evaluation", file)]
    alone = plan.without_interval()
    fit = job_key(alone)
    replicates = [
        Job(job_key(alone, b), f"{name}, replicate {b + 1}", "replicate", file, b, needs=(fit,))
        for b in range(plan.interval.replicates)
    ]
    needs = (fit, *(job.key for job in replicates))
    return [
        Job(fit, f"{name}, fit", "fit", file, stages=len(plan.stages)),
        *replicates,
        Job(own, name, "evaluation", file, needs=needs),
    ]


def job_key(plan: Plan, replicate: int | None = None) -> str:
    """A hash of all that decides what a job computes: data, policy, problem, model, recipe, seed,
    versions, and which replicate it is.
    """
    plain = {
        "run": plan.provenance.identity,
        "versions": plan.provenance.versions,
        "replicate": replicate,
    }
    return hashlib.sha256(plain_json(plain).encode()).hexdigest()[:32]


def is_finished(job: Job, folder: Path) -> bool:
    """Whether what the job computes is there."""
    path = folder / job.key
    if job.part == "replicate":
        return (path / CHECKPOINTS / replicate_file(job.replicate)).exists()
    if job.part == "fit":
        return (path / CHECKPOINTS / stage_file(job.stages)).exists()
    return has_result(path)


def run_job(path: Path, number: int) -> Path:
    """Carry out a job, where it was left; its run directory."""
    jobs = JobsFile.read(path)
    job = jobs.job(number)
    directory = jobs.directory(job.key)
    # Their names are those of hashes, which nobody gives to a link of his own.
    for key in (job.key, *job.needs):
        require_own_directory(jobs.directory(key))
    until = time.monotonic() + BUSY_SECONDS
    most = jobs.memory if ceiling() is None else ceiling()
    with warnings.catch_warnings(), memory_ceiling(most):
        # Who gathers the results says it.
        warnings.simplefilter("ignore", FLEWarning)
        while not is_finished(job, path.parent):
            try:
                _run(job, jobs)
                break
            except BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(BETWEEN)
    return directory


def _run(job: Job, jobs: JobsFile) -> None:
    plan = _plan(jobs.path.parent, job.plan)
    require_same(plan, job)
    directory, alone = jobs.directory(job.key), plan.without_interval()
    if job.part == "fit":
        alone.train(directory)
        return
    if job.part == "replicate":
        state = _trained(alone, jobs.directory(job.needs[0]))
        provenance = _of_replicate(alone, job.replicate)
        with begin_run(directory, provenance, plan.model, "latest") as run:
            loop, resampling = alone.loop(), Resampling.of(plan.data)
            fits = refit(loop, warm_loop(loop, state), resampling, job.replicate, _go_on)
            run.checkpoints.keep_refit(job.replicate, fits)
        return
    if job.needs:
        _gather_parts(plan, job, jobs)
    plan.carry_out(anyway=True, out=directory, progress=Silent())


def _gather_parts(plan: Plan, job: Job, jobs: JobsFile) -> None:
    """Put the fits of other jobs where a run that was stopped after them would have them."""
    alone = plan.without_interval()
    fit, *others = job.needs
    state = _trained(alone, jobs.directory(fit))
    with begin_run(jobs.directory(job.key), plan.provenance, plan.model, "latest") as run:
        for replicate, key in enumerate(others):
            found = _checkpoints(jobs.directory(key), _of_replicate(alone, replicate))
            fits = found.restore_refit(replicate, state.fits)
            if fits is None:
                raise FLEError(f"{jobs.directory(key)} is damaged; remove it and repeat the call.")
            run.checkpoints.keep_refit(replicate, fits)
        run.checkpoints.keep(state)
        run.checkpoints.flush()


@lru_cache(MOST_AT_HAND)
def _plan(folder: Path, name: str) -> Plan:
    return read_plan(folder, name)


def _trained(plan: Plan, directory: Path) -> LoopState:
    """The state after the last stage of a plan that another job carried out."""
    state = _checkpoints(directory, plan.provenance).restore(plan.loop().blank)
    if state is None:
        raise FLEError(f"{directory} is damaged; remove it and repeat the call.")
    return state


def _checkpoints(directory: Path, provenance: Provenance) -> Checkpoints:
    return Checkpoints(directory / CHECKPOINTS, provenance.identity, "latest")


def _of_replicate(alone: Plan, replicate: int) -> Provenance:
    provenance = alone.provenance
    return dataclasses.replace(provenance, settings={**provenance.settings, "replicate": replicate})


def require_same(plan: Plan, job: Job) -> None:
    """Refuse a job that would give something else here than where it was written."""
    here, there = current_versions(), plan.provenance.versions
    changes = [f"{n} {there.get(n)} there, {v} here" for n, v in here.items() if there.get(n) != v]
    if changes:
        raise FLEError(
            f"{job.name} was written where versions are others ({', '.join(changes)}), so its "
            "result could be another. Install the same everywhere."
        )
    alone = plan.without_interval()
    keys = {"replicate": (alone, job.replicate), "fit": (alone, None), "evaluation": (plan, None)}
    if job.part not in keys or job_key(*keys[job.part]) != job.key:
        raise FLEError(f"{job.name}: the plan {job.plan} is not that of its key. Write it again.")


def _go_on() -> None:
    """A job that is stopped is stopped by a signal."""
