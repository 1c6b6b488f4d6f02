"""Asking an actor that Ray may be restarting."""

from __future__ import annotations

import time
from typing import Any

from dlrl_core.errors import DlrlError

_AGAIN_S = 0.2


class NoAnswerError(Exception):
    """An actor did not answer; `is_alive` if it only took too long."""

    def __init__(self, reason: str, *, is_alive: bool) -> None:
        super().__init__(reason)
        self.is_alive = is_alive


def ask_restarting(method: Any, *args: Any, answer_s: float, back_s: float) -> Any:
    """The answer of an actor's method; an actor that is being restarted is asked again, for at most `back_s`.

    Raises the DlrlError that the method raised, or NoAnswerError: at once if the actor is dead for good, else when
    `back_s` has passed. One try waits for at most `answer_s`.
    """
    import ray
    from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayTaskError

    deadline = time.monotonic() + back_s
    while True:
        try:
            return ray.get(method.remote(*args), timeout=answer_s)
        except GetTimeoutError as error:
            if time.monotonic() >= deadline:
                raise NoAnswerError(f"no answer for {back_s:g} s", is_alive=True) from error
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, DlrlError) else error) from None
        except RayActorError as error:
            if isinstance(error, ActorDiedError) or time.monotonic() >= deadline:
                raise NoAnswerError(one_line(error), is_alive=False) from error
            time.sleep(_AGAIN_S)


def one_line(error: Exception) -> str:
    """The message of an error in one line of at most 300 characters."""
    return " ".join(str(error).split())[:300]
