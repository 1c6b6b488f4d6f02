"""A module of a user whose dependency is not installed here."""

import a_library_that_only_the_nodes_have  # noqa: F401

from dlrl_core import BaseWorkload


class Worker(BaseWorkload):
    pass
