"""A function of the product that a test holds up, or listens in on, while everything else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest


class Gatekeeper:
    """Stands in for a function of the product: calls it, but only once the test lets it through.

    Arguments:
        when: which calls are held up.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool] = lambda *a, **k: True
    ) -> None:
        inner = getattr(owner, name)
        self.reached, self.open = threading.Event(), threading.Event()

        def called(*arguments: Any, **named: Any) -> Any:
            if when(*arguments, **named):
                self.reached.set()
                assert self.open.wait(20), "never let through"
            return inner(*arguments, **named)

        monkeypatch.setattr(owner, name, called)


class Calls:
    """Notes the arguments and the answer of every call of a function of the product."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        inner = getattr(owner, name)
        self.made: list[tuple[Any, ...]] = []
        self.answers: list[Any] = []

        def called(*arguments: Any, **named: Any) -> Any:
            self.made.append((*arguments, *named.values()))
            answer = inner(*arguments, **named)
            self.answers.append(answer)
            return answer

        monkeypatch.setattr(owner, name, called)
