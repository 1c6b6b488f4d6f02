"""Registers the cluster 'local': a Ray on this machine, shaped like the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrl_core import hookimpl

if TYPE_CHECKING:
    from dlrl_core.plugin.hookspecs import ClusterStarter, ImportPath


@hookimpl
def dlrl_clusters() -> dict[str, ClusterStarter | ImportPath]:
    return {"local": "dlrl_local_ray.local_cluster:the_shared_cluster"}
