"""What many tests of saved runs look at, made once."""

import pytest
from quick_runs import evaluate


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The directory of a finished run, which no test changes."""
    out = tmp_path_factory.mktemp("runs") / "one"
    evaluate(out=out)
    return out
