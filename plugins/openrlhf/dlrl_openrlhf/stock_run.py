"""OpenRLHF's own `train(args)`, up to the point where it would train, with dlrl's workloads in the place of its actors.

`train` creates engines, groups and the trainer, and has every model loaded, in its own order and with its own
arguments. What it would start is here already: each name by which it starts something gives it a role instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import openrlhf.cli.train_ppo_ray as stock
import ray
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.trainer.ppo_utils import experience_maker, samples_generator
from openrlhf.trainer.ray import launcher, ppo_actor, ppo_critic, vllm_engine

from dlrl_adapter_kit.framework_seam import Member, PatchedRay, RemoteStub, done, replaced
from dlrl_core.roles import RoleType
from dlrl_core.trainer.role_call import RoleCall
from dlrl_core.trainer.role_group import RoleGroup
from dlrl_openrlhf.engine_sleep import EngineSleep
from dlrl_openrlhf.member_group import MemberGroup

_ROLE_OF = {
    ppo_actor.PolicyModelActor: RoleType.ACTOR,
    ppo_critic.CriticModelActor: RoleType.CRITIC,
    launcher.ReferenceModelActor: RoleType.REFERENCE,
    launcher.RewardModelActor: RoleType.REWARD,
}


class _ReachedFit(Exception):
    """`train` is about to train: all is ready."""


@dataclass
class StockRun:
    """What OpenRLHF's `train` has set up."""

    groups: Mapping[RoleType, RoleGroup]
    args: Any
    models: dict[RoleType, MemberGroup] = field(default_factory=dict)
    engines: list[Member] | None = None
    sleep: EngineSleep | None = None
    """Where engines sleep while models work."""
    trainer_args: tuple[Any, ...] = ()
    trainer_kwargs: dict[str, Any] = field(default_factory=dict)
    _starting: list[Any] = field(default_factory=list)

    def set_up(self, make_trainer: Callable[[], Any]) -> None:
        """Run `train` until every model is loaded."""

        def trainer_is_made(*args: Any, **kwargs: Any) -> _TrainerAtStart:
            self.trainer_args, self.trainer_kwargs = args, kwargs
            return _TrainerAtStart(make_trainer())

        made = RemoteStub(trainer_is_made)
        with (
            self.through_roles(),
            replaced(
                stock,
                ray=_RayBesideEngines(self._starting),
                placement_group=_no_placement,
                create_vllm_engines=self._create_engines,
                RayActorGroup=self._group,
            ),
            replaced(ppo_trainer, PPOTrainer=made),
            replaced(ppo_trainer_async, PPOTrainerAsync=made),
            contextlib.suppress(_ReachedFit),
        ):
            stock.train(self.args)
        PatchedRay().get(self._starting)

    def _create_engines(self, num_engines: int, tensor_parallel_size: int, *args: Any, **kwargs: Any) -> list[Member]:
        """OpenRLHF's own `create_vllm_engines` says with what; the rollout workloads become the engines."""
        recorded: list[dict[str, Any]] = []
        with replaced(
            vllm_engine,
            RolloutRayActor=RemoteStub(lambda **engine: recorded.append(engine)),
            placement_group=_no_placement,
            get_bundle_indices=lambda *_: [0],
            ray=_RayThatRuns(),
            batch_vllm_engine_call=lambda *_, **__: None,
        ):
            stock_create(num_engines, tensor_parallel_size, *args, **kwargs)
        rollouts = self.groups[RoleType.ROLLOUT]
        members = [Member(rollouts, position) for position in range(len(rollouts))]
        seats = len(members) // num_engines  # several where an engine's devices are shared with other roles
        self.engines = members[::seats]
        for number, told in enumerate(recorded):
            engine, *others = members[number * seats : (number + 1) * seats]
            self._starting.append(engine.start_engine.remote({**told, "bundle_indices": None, "num_gpus": 1}, others))
        if self.args.vllm.enable_sleep:  # before any model is loaded; who takes an engine's place does it too
            PatchedRay().get(self._starting)
            self.sleep = EngineSleep(self.engines, _on_all)
            self.let_engines_sleep()
        return self.engines

    def let_engines_sleep(self) -> None:
        """As they are when OpenRLHF begins to train. They drop what they still generate for an earlier `fit`."""
        if self.sleep is not None:
            self.sleep.call(self.engines or [], "sleep")

    def weights_awake(self) -> AbstractContextManager[None]:
        """The engines can take weights in here, also those that sleep."""
        return self.sleep.weights_awake() if self.sleep else contextlib.nullcontext()

    def _group(self, num_nodes: int, num_gpus_per_node: int, actor_class: Any, **options: Any) -> MemberGroup:
        role = _ROLE_OF[actor_class]
        group = self.groups[role]
        if len(group) != num_nodes * num_gpus_per_node:
            raise ValueError(
                f"role '{role}' has {len(group)} workloads; its flags say {num_nodes} x {num_gpus_per_node}"
            )
        self.models[role] = MemberGroup(group, options.get("duplicate_actors", 1))
        return self.models[role]

    @contextlib.contextmanager
    def through_roles(self) -> Iterator[None]:
        """OpenRLHF's trainer code calls role groups."""
        ray_of_roles = PatchedRay()
        call = self.sleep.call if self.sleep else _on_all
        with (
            replaced(ppo_trainer, ray=ray_of_roles, batch_vllm_engine_call=call),
            replaced(ppo_trainer_async, ray=ray_of_roles, batch_vllm_engine_call=call),
            replaced(experience_maker, ray=ray_of_roles),
            replaced(samples_generator, ray=ray_of_roles, batch_vllm_engine_call=call),
        ):
            yield

    def save_models(self) -> None:
        """What `train` does at its end."""
        through = PatchedRay()
        through.get(self.models[RoleType.ACTOR].async_save_model())
        if RoleType.CRITIC in self.models and self.args.critic.save_value_network:
            through.get(self.models[RoleType.CRITIC].async_save_model())


stock_create = vllm_engine.create_vllm_engines


def _on_all(engines: Sequence[Member], method: str, *args: Any, **kwargs: Any) -> list[Any]:
    """OpenRLHF's `batch_vllm_engine_call`, also where its modules call Ray itself."""
    results: list[Any] = PatchedRay().get([getattr(engine, method).remote(*args, **kwargs) for engine in engines])
    return results


class _RayThatRuns(PatchedRay):
    def is_initialized(self) -> bool:
        return True


class _RayBesideEngines(_RayThatRuns):
    """While engines start: what one of them fails with is raised at once, for others wait for them in vain."""

    def __init__(self, starting: list[RoleCall]) -> None:
        self._starting = starting

    def get(self, refs: Any, *, timeout: float | None = None) -> Any:
        wanted = {ref.refs[0] for ref in refs if isinstance(ref, RoleCall)} if isinstance(refs, list) else set()
        starting = {call.refs[0]: call for call in self._starting}
        while wanted and starting:
            ready, _ = ray.wait([*starting, *wanted], num_returns=1)
            wanted.difference_update(ready)
            for ref in ready:
                if ref in starting:
                    starting.pop(ref).get()
        return super().get(refs, timeout=timeout)


class _no_placement:  # noqa: N801 - stands for a function of that name
    """A placement group that is granted at once: dlrl has placed everybody."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def ready(self) -> list[Any]:
        return []


class _TrainerAtStart:
    """The trainer as `train` sees it: it is asked for its number of steps, and then to train."""

    def __init__(self, trainer: Any) -> None:
        self.get_max_steps = RemoteStub(lambda: done(trainer.get_max_steps()))
        self.fit = RemoteStub(_reached_fit)


def _reached_fit() -> None:
    raise _ReachedFit
