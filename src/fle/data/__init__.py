"""Logged data becomes a checked `Dataset`."""

from fle.data.dataset import Dataset

__all__ = ["Dataset"]
