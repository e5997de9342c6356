"""Command lines in tests leave no compiled code in the user's cache."""

import pytest


@pytest.fixture(autouse=True)
def no_compilation_cache(monkeypatch):
    monkeypatch.setenv("FLE_COMPILATION_CACHE", "off")
    monkeypatch.delenv("FLE_TRACEBACK", raising=False)
