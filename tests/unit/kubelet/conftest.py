"""Certificates for the tests of the kubelet server: made once."""

from __future__ import annotations

import pytest

from tests.support.kubeletstage import Keys


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys.make(tmp_path_factory.mktemp("kubelet-keys"))
