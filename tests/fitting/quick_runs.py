"""One small evaluation, for tests of what becomes of it on the disk."""

from quick_fits import cycle

import fle

QUICK = fle.Recipe(steps=20, batch_size=50, weight_decay=0.0)
LINEAR = fle.Gaussian(hidden=())


def evaluate(data=None, **settings):
    settings = {"model": LINEAR, "recipe": QUICK, "horizon": 3, **settings}
    return fle.evaluate(cycle(200) if data is None else data, [1.0], **settings)
