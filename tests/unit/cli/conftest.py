"""Commands start logging, which is global: every test gets back what was before."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # else they would be closed
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()
