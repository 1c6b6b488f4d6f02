"""The ready-made trainer: verl's own PPO over role groups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from dlrl_adapter_kit.framework_seam import keep_one_wandb_run
from dlrl_core import BaseTrainer
from dlrl_core.roles import RoleType
from dlrl_core.trainer import WorkloadHandle
from dlrl_verl.checkpoints import align_checkpoints
from dlrl_verl.config import RUNTIME_ENV


class VerlTrainer(BaseTrainer):
    """Runs verl's `main_ppo` for the composed config, and commits each of its steps.

    verl is imported when it is known whether there are GPUs: it looks for them then.
    """

    def init(self) -> None:
        config: Any = OmegaConf.create(OmegaConf.to_container(self.config))
        config.pop(RUNTIME_ENV, None)
        if any(self.RG_ACTOR.lacks_gpu()):
            from dlrl_verl import cpu

            cpu.prepare()
            cpu.without_cuda(config)
        from dlrl_verl.ppo import Watched
        from dlrl_verl.stock_run import StockRun

        _, run_id = self.RG_ACTOR.job_and_run()[0]
        keep_one_wandb_run(run_id)
        self._history: list[dict[str, Any]] = []
        self._run = StockRun(self._groups, config, self)
        self._run.set_up()
        ppo = self._run.trainer
        self._generation = Watched(ppo.async_rollout_manager, "generate_sequences", self.heal)
        self._scoring = Watched(ppo.reward_loop_manager, "compute_rm_score", self.heal)
        ppo.async_rollout_manager, ppo.reward_loop_manager = self._generation, self._scoring
        self._total = ppo.total_training_steps
        self._is_used = False

    def fit(self) -> dict[str, Any]:
        ppo = self._run.trainer
        if not self.progress:
            align_checkpoints(self._run.config)
        with self._run.through_roles():
            if self._is_used:
                self._end_what_was_going_on()
            self._is_used = True
            self._meet_servers()
            if self._run.reward_model is not None:
                self._run.reward_model.meet_servers()
            ppo.fit()
        self.end_steps(self._total)
        return {"steps": self._total, "history": self._history}

    def _end_what_was_going_on(self) -> None:
        """Requests of a run of `fit` that is over: servers must be idle before they get other weights."""
        self._generation.abandon()
        if self._run.reward_model is not None:
            self._scoring.finish()
            self._run.reward_model.rest()
        manager = self._run.trainer.checkpoint_manager
        manager.abort_replicas()
        manager.resume_generation_replicas()
        manager.sleep_replicas()

    # ---- workloads that were restarted

    def on_restart(self, workloads: list[WorkloadHandle]) -> None:
        if not self._is_used:
            return
        scorers = [one.rank for one in workloads if one.role == RoleType.REWARD]
        if scorers and self._run.reward_model is not None:
            self._run.reward_model.meet_servers(woken=scorers if self._scoring.is_running else [])
        if ranks := [one.rank for one in workloads if one.role == RoleType.ROLLOUT]:
            self._give_weights(ranks)

    def _give_weights(self, ranks: list[int]) -> None:
        """To rollout servers that are new."""
        self._meet_servers()
        if self._generation.is_running:  # else all servers get weights before they are asked for anything
            replicas = self._run.trainer.llm_server_manager.get_replicas()
            servers = {server.handle.rank: one.replica_rank for one in replicas for server in one.servers}
            only = sorted({servers[rank] for rank in ranks if rank in servers})
            self.RG_ACTOR.update_weights.options(auto_shard=False)(self._run.trainer.global_steps, only=only)

    def _meet_servers(self) -> None:
        replicas = self._run.trainer.llm_server_manager.get_replicas()
        servers = [[server.handle.ray_actor for server in one.servers] for one in replicas]
        self.RG_ACTOR.meet_servers.options(auto_shard=False)(servers)

    # ---- what verl's trainer tells, step by step

    @property
    def resumed(self) -> Mapping[str, Any]:
        return self.progress

    def began(self, global_step: int) -> None:
        if global_step < self._total:
            self.begin_step(global_step, self._total)

    def done(self, global_step: int, shown: Mapping[str, float], progress: dict[str, Any]) -> None:
        self.log(**{name: value for name, value in shown.items() if name != "seconds"})
        self._history = [one for one in self._history if one["step"] < global_step]
        self._history.append({"step": global_step, "ended_at": time.time(), **shown})
        self.commit(global_step - 1, **progress)
