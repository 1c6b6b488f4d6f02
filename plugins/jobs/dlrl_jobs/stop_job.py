"""`dlrl stop`: end a job and wait until nothing of it is left."""

from __future__ import annotations

from dlrl_core.cli.app import is_cluster_named
from dlrl_core.cli.output import print_json
from dlrl_core.errors import ClusterError, JobNotFoundError


def stop_job(name: str, address: str | None, *, as_json: bool) -> None:
    """Stop the job through its Master. A job that has ended stays as it is, and that is no error."""
    state = _stop_by_master(name, address) if is_cluster_named(address) else None
    if state is None:
        state = _ended_by_record(name, address)
        text = f"job '{name}' has ended: {state}"
    else:
        text = f"job '{name}' is {state}"
    if as_json:
        print_json({"name": name, "state": state})
    else:
        print(text)


def _stop_by_master(name: str, address: str | None) -> str | None:
    """The state the job ended in; None if the cluster has no Master of it."""
    from dlrl_core.api import JobHandle
    from dlrl_core.api.connection import connect
    from dlrl_core.roles import MASTER
    from dlrl_core.scheduler.workload_launcher import find_actor

    connection = connect(address)
    try:
        handle = JobHandle.attach(name, connection)
    except JobNotFoundError:
        connection.close()
        return None
    try:
        handle.stop("stopped by: dlrl stop")  # closes the connection when the job has ended
    except ClusterError:
        if find_actor(name, MASTER) is not None:
            raise
        connection.close()
        return None  # the job has ended, and the process that submitted it has removed the Master
    return handle.status().state


def _ended_by_record(name: str, address: str | None) -> str:
    """The final state in the store. Raises if there is no such record, or if it is not final."""
    from dlrl_core.context import JobContext, default_store_url, open_store

    with open_store(default_store_url()) as store:
        record = JobContext.load(store, name).record
    if record.state.is_final:
        return record.state.value
    if not is_cluster_named(address):
        raise ClusterError(
            f"the record of job '{name}' says '{record.state}'; to stop it, name its cluster: say --address or set "
            "RAY_ADDRESS (a job of `dlrl run` without a cluster ends with Ctrl-C there)"
        )
    raise JobNotFoundError(
        name,
        f"the record of job '{name}' says '{record.state}', but this cluster has no master of it: "
        "it runs elsewhere, or it died with its cluster",
    )
