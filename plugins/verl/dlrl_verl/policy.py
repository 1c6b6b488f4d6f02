"""verl's own worker of the policy as a workload."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from verl.workers.engine_workers import ActorRolloutRefWorker

from dlrl_core.workload.captured_state import CapturedState, SavedState
from dlrl_verl import engine_state
from dlrl_verl.weight_receiver import without_file
from dlrl_verl.weight_sync import ServerHandle, sending_weights
from dlrl_verl.workloads import WorkerWorkload, exposing, reading


@exposing(ActorRolloutRefWorker)
class ActorWorkload(WorkerWorkload):
    """The policy, with the reference beside it where verl has it so. It gives its weights to the rollout servers."""

    worker_class = ActorRolloutRefWorker

    def init_model(self) -> None:
        """As verl's, but for where weights are handed over: two jobs of one driver have the same Ray job."""
        self.worker.init_model()
        rollout, job_id = self.worker.rollout, ray.get_runtime_context().get_job_id()
        rollout.zmq_handle = without_file(rollout.zmq_handle.replace(job_id, self._identity.run_id))

    @reading
    def meet_servers(self, servers: Sequence[Sequence[Any]]) -> None:
        """These processes are the servers now: for each replica, that of each of its nodes."""
        rollout = self.worker.rollout
        actor = servers[rollout.replica_rank][rollout.node_rank]
        known: ServerHandle | None = rollout.server_handle
        if known is None or known.is_gone or known.actor_id != actor._actor_id.hex():
            rollout.server_handle = ServerHandle(actor)

    @reading
    def update_weights(self, global_steps: int | None = None, mode: str = "auto", only: Sequence[int] = ()) -> None:
        """Give the weights to this rank's server, and get along without one that dies meanwhile.

        With `only`, to the servers of these replicas; the ranks of others just take part in gathering the weights.
        """
        rollout = self.worker.rollout
        is_meant = not only or rollout.replica_rank in only
        with sending_weights(self.worker, is_meant=is_meant):
            asyncio.run(self.worker.update_weights(global_steps=global_steps, mode=mode))

    def capture_state(self) -> CapturedState:
        return engine_state.capture(self.worker.actor.engine)

    def restore_state(self, saved: SavedState) -> None:
        engine_state.restore(self.worker.actor.engine, saved)
