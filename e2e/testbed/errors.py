"""The one error of the test bed: something the person at the keyboard has to know about."""

from typing import ClassVar


class TestbedError(Exception):
    """Say in one message what was attempted, what came back and what to do about it."""

    # Keeps pytest from collecting the class in modules that import it.
    __test__: ClassVar[bool] = False
