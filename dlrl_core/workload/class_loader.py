"""Finding a user's class by module and name, decorated with `@ray.remote` or not."""

from __future__ import annotations

import difflib
import importlib
import inspect

from dlrl_core.spec import ClassRef


def load_class(ref: ClassRef) -> type:
    """The undecorated class. Raises what importing raises, or AttributeError / TypeError with a sentence."""
    module = importlib.import_module(ref.module)
    if not hasattr(module, ref.class_name):
        close = difflib.get_close_matches(ref.class_name, dir(module), n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise AttributeError(f"module '{ref.module}' has no class '{ref.class_name}'{hint}")
    found = undecorated(getattr(module, ref.class_name))
    if not inspect.isclass(found):
        raise TypeError(f"'{ref}' is a {type(found).__name__}, not a class")
    return found


def undecorated(found: object) -> object:
    """The class that `@ray.remote` was put on, or the object itself."""
    metadata = getattr(found, "__ray_metadata__", None)
    if metadata is None:
        return found
    modified = metadata.modified_class
    # Ray derives a class of the same name from the user's and adds its own methods to it; ours is the base.
    return next((base for base in modified.__mro__[1:] if base.__name__ == modified.__name__), modified)
