"""One small evaluation, for tests of what becomes of it on the disk."""

import json
import shutil

from quick_fits import cycle

import fle
from fle.manifests import write_manifest

QUICK = fle.Recipe(steps=20, batch_size=50, weight_decay=0.0)
LINEAR = fle.Gaussian(hidden=())


def evaluate(data=None, **settings):
    settings = {"model": LINEAR, "recipe": QUICK, "horizon": 3, **settings}
    return fle.evaluate(cycle(200) if data is None else data, [1.0], **settings)


def copied(out, place):
    """The run in another place, with all its files."""
    shutil.copytree(out, place)
    return place


def sealed(run):
    """The run with a manifest of the files it has now, as somebody who forges it would write."""
    names = json.loads((run / "manifest.json").read_text())["files"]
    write_manifest(run, [name for name in names if (run / name).exists()])
    return run
