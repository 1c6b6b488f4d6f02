"""The ready-made trainer: OpenRLHF's own PPO, synchronous or asynchronous, over role groups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from openrlhf.trainer import ppo_trainer_async

from dlrl_adapter_kit.framework_seam import RemoteStub, replaced
from dlrl_core import BaseTrainer
from dlrl_core.errors import DlrlError
from dlrl_core.roles import RoleType
from dlrl_core.trainer import WorkloadHandle
from dlrl_openrlhf.checkpoints import align_checkpoints
from dlrl_openrlhf.config.own_parser import own_namespace
from dlrl_openrlhf.config.said import argv_of, flat
from dlrl_openrlhf.cpu import without_cuda
from dlrl_openrlhf.local_actors import LocalActor, LocalLock, LocalQueue, Stage
from dlrl_openrlhf.logs import close_logs, keep_one_log
from dlrl_openrlhf.ppo import (
    CommittingPPOTrainer,
    CommittingTrainingActor,
    MarkingGenerateSamplesActor,
    PPOTrainerAsync,
)
from dlrl_openrlhf.step_count import most_steps
from dlrl_openrlhf.stock_run import StockRun


class OpenRLHFTrainer(BaseTrainer):
    """Runs OpenRLHF's `train(args)` for the flags in `config`, and commits each of its steps."""

    def init(self) -> None:
        args = without_cuda(own_namespace(argv_of(self.config)), lacks_gpu=any(self.RG_ACTOR.lacks_gpu()))
        job, run_id = self.RG_ACTOR.job_and_run()[0]
        keep_one_log(args, job=job, run_id=run_id, is_named="logger.wandb.run_name" in flat(self.config))
        self._torn: DlrlError | None = None
        if args.ckpt.load_enable and not args.ds.use_universal_ckpt:
            args.ckpt.load_enable = self._has_checkpoint(args)  # OpenRLHF would not get along with a folder of none
        self._run = StockRun(groups=self._groups, args=args)
        self._stage: Stage | None = None
        self._ppo: Any = None
        self._total = self._step = 0
        self._history: list[dict[str, Any]] = []
        self._run.set_up(self._make_trainer)

    def _has_checkpoint(self, args: Any) -> bool:
        """Torn checkpoints are an error of this job only if it has to begin with one: a commit needs none."""
        try:
            return align_checkpoints(args.ckpt.path, has_critic=bool(args.critic.model_name_or_path)) is not None
        except DlrlError as error:
            self._torn = error
            return False

    def fit(self) -> dict[str, Any]:
        if self._torn is not None and self.committed_step is None:
            raise self._torn
        with self._run.through_roles():
            ppo = self._ppo or self._make_trainer()
            self._ppo = None  # used up: whoever enters again makes a new one
            try:
                self._run.let_engines_sleep()
                self._give_weights(is_new=False)
                ppo.fit()
            finally:
                if self._stage is not None:
                    self._stage.close()
                close_logs(self._halves(ppo)[1])
            self.end_steps(self._step)
            self._run.save_models()
        return {"steps": self._step, "history": self._history}

    def on_restart(self, workloads: list[WorkloadHandle]) -> None:
        if any(one.role == RoleType.ROLLOUT for one in workloads):
            self._give_weights(is_new=True)

    def _give_weights(self, *, is_new: bool) -> None:
        """Engines and policy meet, if they have not, and all engines get the policy's weights."""
        engines = self._run.engines
        if (
            engines
            and any(self.RG_ACTOR.meet_engines.options(auto_shard=False)([one.handle for one in engines])) | is_new
        ):
            with self._run.weights_awake():
                self.RG_ACTOR.broadcast_to_vllm()

    # ---- what OpenRLHF's trainer is made of

    def _make_trainer(self) -> Any:
        args, kwargs = self._run.trainer_args, self._run.trainer_kwargs
        if self._run.args.train.async_enable:
            ppo = self._make_async_trainer(args, kwargs)
        else:
            ppo = CommittingPPOTrainer(*args, steps=self, **kwargs)
        self._ppo = ppo
        generating, _ = self._halves(ppo)
        self._total = most_steps(self._run.args, prompts=len(generating.prompts_dataloader))
        return ppo

    def _halves(self, ppo: Any) -> tuple[Any, Any]:
        """The part of OpenRLHF's trainer that generates and the one that trains; one is both, if it is synchronous."""
        is_async = self._run.args.train.async_enable
        return (ppo.generator_actor.instance, ppo.trainer_actor.instance) if is_async else (ppo, ppo)

    def _make_async_trainer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._stage = stage = Stage()
        with replaced(
            ppo_trainer_async,
            Queue=lambda maxsize=0: LocalQueue(stage, maxsize),
            VLLMLock=RemoteStub(lambda: LocalLock(stage)),
            GenerateSamplesActor=RemoteStub(lambda **told: LocalActor(MarkingGenerateSamplesActor(**told), stage)),
            TrainingActor=RemoteStub(lambda **told: LocalActor(CommittingTrainingActor(steps=self, **told), stage)),
        ):
            return PPOTrainerAsync(*args, **kwargs)

    # ---- what OpenRLHF's trainer tells, step by step

    @property
    def resumed(self) -> Mapping[str, Any]:
        return self.progress

    def began(self, global_step: int) -> None:
        self._step = global_step
        if global_step < self._total:
            self.begin_step(global_step, self._total)

    def commit_step(self, global_step: int, progress: dict[str, Any]) -> None:
        self.commit(global_step - 1, **progress)

    def done(self, global_step: int, shown: Mapping[str, float], seconds: float) -> None:
        self.log(**shown)
        self._history = [one for one in self._history if one["step"] < global_step]
        self._history.append({"step": global_step, "seconds": seconds, "ended_at": time.time(), **shown})
