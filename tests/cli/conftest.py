"""Command lines in tests leave no compiled code in the user's cache, and start no process."""

import pytest


@pytest.fixture(autouse=True)
def no_compilation_cache(monkeypatch):
    monkeypatch.setenv("FLE_COMPILATION_CACHE", "off")
    monkeypatch.delenv("FLE_TRACEBACK", raising=False)


@pytest.fixture(autouse=True)
def policies_in_this_process(request, monkeypatch):
    """A process takes a second to start; tests that are about it ask for it."""
    if "own_process" not in request.keywords:
        monkeypatch.setattr("fle.cli.inputs.POLICY_MEMORY", None)
