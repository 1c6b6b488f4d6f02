"""A job that looks around: what its workloads and its trainer see, for tests of every property and method."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import numpy as np
import ray
from omegaconf import DictConfig, OmegaConf

from dlrl_core import BaseTrainer, BaseWorkload, RoleType, trainer_invocation, whole
from dlrl_core.errors import CallTimeoutError, DlrlError, WorkloadCallError


def filter_func(input: int):
    if input < -1:
        return 0
    return input


def shout(text, *, times=1):
    return [text.upper()], {"times": times + 1}


class NoReduceError(Exception):
    """Pickles, but does not unpickle: the usual mistake."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class ProbeWorkload(BaseWorkload):
    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        self.at_construction = (self.name, self.rank, self.world_size)
        self.got = []
        self.running = 0
        self.most_running = 0

    def properties(self):
        """What a workload can read of itself."""
        return {
            "master_answers": ray.get(self.master_handle.ping.remote()) > 0,
            "config_is_dictconfig": isinstance(self.config, DictConfig),
            "config": OmegaConf.to_container(self.config, resolve=False),
            "resolved": OmegaConf.to_container(self.config, resolve=True),
            "name": self.name,
            "role": self.role,
            "rank": self.rank,
            "word_size": self.word_size,
            "world_size": self.world_size,
            "local_rank": self.local_rank,
            "local_world_size": self.local_world_size,
            "torch_master_addr": self.torch_master_addr,
            "torch_master_port": self.torch_master_port,
            "is_actor_role": self.is_actor_role(),
            "is_reference_role": self.is_reference_role(),
            "is_rollout_role": self.is_rollout_role(),
            "is_reward_role": self.is_reward_role(),
            "is_critic_role": self.is_critic_role(),
            "get_device_collocation": self.get_device_collocation(),
            "at_construction": self.at_construction,
            "node": ray.get_runtime_context().get_node_id(),
            "node_address": ray.util.get_node_ip_address(),
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "env": {key: os.environ.get(key) for key in ENV_KEYS},
            "hash_seed": os.environ.get("PYTHONHASHSEED"),
        }

    # ---- seed 001's invocation examples

    @trainer_invocation(blocking=False)
    def a(self, value):
        time.sleep(2)
        return ("a", self.rank, value)

    @trainer_invocation(is_async=True, timeout=30)
    def b(self, value):
        return ("b", self.rank, value)

    @trainer_invocation(is_async=True, timeout=30, pre_func=filter_func)
    def c(self, input: int):
        return input + 1

    # ---- one method for each attribute

    def default(self, batch):
        return batch

    @trainer_invocation(is_async=True, timeout=1)
    def slow_on_rank_1(self):
        if self.rank == 1:
            time.sleep(3)
        return self.rank

    @trainer_invocation(target="RANK0")
    def only_first(self, batch):
        return (self.rank, batch)

    @trainer_invocation(auto_shard=False)
    def unsharded(self, batch):
        return batch

    @trainer_invocation(pre_func=shout)
    def prepared(self, text, times):
        return text * times

    @trainer_invocation(post_func=sum)
    def summed(self, batch):
        return sum(batch)

    # ---- errors, references, coroutines

    def fail_on_rank_1(self):
        if self.rank == 1:
            raise ValueError("rank one is unhappy")
        return "fine"

    def fail_unpicklably(self):
        raise NoReduceError("left", "right")

    def return_unreadable(self):
        return NoReduceError("left", "right") if self.rank == 1 else None

    @trainer_invocation(blocking=False)
    def make(self, batch):
        return np.array(batch)

    def take(self, batch):
        return batch.tolist()

    @trainer_invocation(auto_shard=False)
    def take_all(self, batches):
        return [batch.tolist() for batch in batches]

    async def together(self):
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0.5)
        self.running -= 1
        return self.most_running

    def thread_name(self):
        return threading.current_thread().name


ENV_KEYS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SHARED", "OWN")


class ProbeTrainer(BaseTrainer):
    """Returns what it saw, for the tests to judge."""

    def init(self):
        self.was_initialised = True

    def fit(self):
        return {
            "was_initialised": self.was_initialised,
            "properties": {role: getattr(self, f"RG_{role.name}").properties() for role in self.actor_handles},
            "trainer": self.look_at_trainer(),
            "calls": self.make_calls(),
            "errors": self.make_errors(),
        }

    def look_at_trainer(self):
        per_role = {
            "actors": self.actors,
            "references": self.references,
            "rollouts": self.rollouts,
            "rewards": self.rewards,
            "critics": self.critics,
        }
        return {
            "config_is_dictconfig": isinstance(self.config, DictConfig),
            "lr": self.config.lr,
            "actor_handles": {role: [h.name for h in handles] for role, handles in self.actor_handles.items()},
            "through_handles": {
                name: ray.get([handle.default.remote(name) for handle in handles]) for name, handles in per_role.items()
            },
            "class_of_actor": self.actor_classes[RoleType.ACTOR].__name__,
            "role_groups": self.get_role_groups(),
            "resources": {role: self.get_workload_resource(role) for role in self.actor_handles},
            "is_bound": all(hasattr(self, name) for name in self.get_role_groups()),
        }

    def make_calls(self):
        began = time.monotonic()
        handle = self.RG_ACTOR.a("x")
        returned_after = time.monotonic() - began
        actor = self.RG_ACTOR
        made = self.RG_ACTOR.make([1, 2, 3, 4])
        return {
            "a_returned_after": returned_after,
            "a_is_handle": type(handle).__name__,
            "a_refs": [type(ref).__name__ for ref in handle],
            "a": handle.get(),
            "a_through_ray": ray.get(list(handle)),
            "b": actor.b("y"),
            "c_low": actor.c(-5),
            "c_high": actor.c(5),
            "default_even": actor.default([1, 2, 3, 4]),
            "default_uneven": actor.default([1, 2, 3]),
            "default_short": actor.default([1]),
            "default_text": actor.default("text"),
            "default_dict": actor.default({"x": [1, 2], "y": [3, 4]}),
            "default_array": [part.tolist() for part in actor.default(np.arange(4))],
            "whole": actor.default(whole([1, 2, 3, 4])),
            "as_keyword": actor.default(batch=[1, 2, 3, 4]),
            "unsharded": actor.unsharded([1, 2, 3, 4]),
            "options": actor.default.options(auto_shard=False)([1, 2]),
            "only_first": actor.only_first([1, 2]),
            "prepared": actor.prepared("ab"),
            "summed": actor.summed([1, 2, 3, 4]),
            "by_reference": self.RG_ROLLOUT.take(made),
            "by_reference_split": self.RG_CRITIC.take(made),
            "by_reference_whole": self.RG_ROLLOUT.take_all(made),
            "big_array": [part.nbytes for part in actor.unsharded(np.zeros(200_000))],
            "together": self.RG_ACTOR.together() + ray.get([self.RG_ACTOR.together.options(blocking=False)().refs[0]]),
            "overlap": [max(call.get()) for call in [actor.together.options(blocking=False)() for _ in range(4)]],
            "order": self.order_of_calls(),
            "as_refs": self.as_references(),
        }

    def as_references(self):
        """Role calls given to Ray's own functions."""
        slow, fast = self.RG_ACTOR.a("x"), self.RG_ROLLOUT.default.options(blocking=False)([1, 2, 3, 4])
        summed = self.RG_ACTOR.summed.options(blocking=False)([1, 2, 3, 4])
        plain = self.rollouts[0].default.remote([5])
        first = ray.wait([slow, fast, plain], num_returns=2)
        return {
            "wait": [[one is slow for one in some] for some in first],
            "no_time": [len(some) for some in ray.wait([slow], timeout=0)],
            "timeout": type(self.caught(lambda: ray.get(slow, timeout=0.01))).__mro__,
            "slow": ray.get(slow),
            "post_func": ray.get(summed),
            "list": ray.get([fast, plain]),
            "all": [len(some) for some in ray.wait([slow, fast, plain], num_returns=3)],
        }

    def order_of_calls(self):
        calls = [self.RG_ACTOR.default.options(blocking=False)(whole(number)) for number in range(20)]
        return [call.get()[0] for call in calls]

    def make_errors(self):
        return {
            "timeout": self.caught(self.RG_ACTOR.slow_on_rank_1),
            "raised": self.caught(self.RG_ACTOR.fail_on_rank_1),
            "unpicklable": self.caught(self.RG_ACTOR.fail_unpicklably),
            "unreadable": self.caught(self.RG_ACTOR.return_unreadable),
            "unknown_method": self.caught(lambda: self.RG_ACTOR.defualt([1])),
            "unknown_group": self.caught(lambda: self.RG_REWARDS),
            "unknown_role": self.caught(lambda: self.get_workload_resource("critc")),
        }

    def caught(self, call):
        try:
            call()
        except (CallTimeoutError, WorkloadCallError, AttributeError, DlrlError, TimeoutError) as error:
            return error
        return None
