"""A small log, plans of it that are fitted in a moment, and executors that are cheap."""

import numpy as np

import fle
from fle.executors import Order, Outcome, reason, work

ROWS = 300
LINEAR = fle.Gaussian(std=1.0, hidden=())
# Stages so short that tests compile them as other processes do, which have their flags alone.
RECIPE = fle.Recipe(steps=60, batch_size=100, weight_decay=0.0, learning_rate=0.02)


def log(rows=ROWS, **changes):
    """Episodes of eight and of twelve steps in turn, of two actions and three features."""
    ends = np.isin(np.arange(2 * ROWS) % 20, (7, 19))
    generator = np.random.default_rng(0)
    seen = {
        "observations": generator.normal(size=(2 * ROWS, 3)),
        "actions": generator.integers(0, 2, 2 * ROWS),
        "rewards": generator.normal(size=2 * ROWS),
        "episodes": np.cumsum(ends) - ends,
        "terminations": ends,
    }
    given = {name: values[:rows] for name, values in seen.items()} | changes
    return fle.Dataset(number_of_actions=2, **given)


def plan(data=None, policy=(0.4, 0.6), **settings):
    """Two stages, and no opinions, which take longer than the fit."""
    settings = {"model": LINEAR, "recipe": RECIPE, "gamma": 0.5, "stages": 2, **settings}
    return fle.plan(log() if data is None else data, list(policy), **settings)


class Here:
    """Jobs one after another in this process; those that were asked for, by name."""

    shared = False

    def __init__(self, folder, stop_after=None):
        self.folder, self.asked, self._stop_after = folder, [], stop_after

    def run(self, jobs):
        order = Order(jobs)
        waiting = order.ready()
        while waiting:
            number = waiting.pop(0)
            if len(self.asked) == self._stop_after:
                raise KeyboardInterrupt
            self.asked.append(jobs.job(number).name)
            try:
                outcome = Outcome(number, work(str(jobs.path), number))
            except Exception as error:
                outcome = Outcome(number, None, reason(error))
            yield from order.ended(outcome)
            waiting += order.ready()


def same(ours, theirs):
    """Whether two evaluations are the same, to the last bit."""
    ends = [None if one.refits is None else one.interval("mean").ends for one in (ours, theirs)]
    return (
        np.array_equal(ours.returns.samples, theirs.returns.samples)
        and ends[0] == ends[1]
        and (ours.notes, ours.warnings) == (theirs.notes, theirs.warnings)
    )
