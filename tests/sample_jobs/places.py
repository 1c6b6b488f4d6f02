"""A job whose workloads tell where they sit, as they see it themselves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import ray

from dlrl_core import BaseTrainer, BaseWorkload


class Guest(BaseWorkload):
    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        self.seen_at_construction = os.environ.get(config.get("variable", "CUDA_VISIBLE_DEVICES"))
        time.sleep(config.get("construct_s", 0))

    def where(self):
        context = ray.get_runtime_context()
        return {
            "name": self.name,
            "part": (self.part, self.part_rank, self.part_size),
            "local": (self.local_rank, self.local_world_size),
            "node": context.get_node_id(),
            "ray_devices": tuple(context.get_accelerator_ids().get(self.config.get("device_type", "GPU"), ())),
            "device_ids": self.device_ids,
            "visible": self.seen_at_construction,
            "collocation": self.get_device_collocation(),
            "pid": os.getpid(),
        }


class Host(BaseTrainer):
    """Asks everybody, and may wait for a file before it ends."""

    def init(self):
        pass

    def fit(self):
        seen = self.ask()
        for _ in self.steps(self.config.get("steps", 1)):
            if self.config.get("until"):
                while not Path(self.config.until).exists():
                    self.RG_ACTOR.where()
                    time.sleep(0.05)
        return {"first": seen, "last": self.ask(), "parts": self.ask_parts()}

    def ask(self):
        return [one for role in self.actor_handles for one in getattr(self, role.group_name).where()]

    def ask_parts(self):
        parts = dict.fromkeys(handle.part for handle in self.rollouts if handle.part)
        return {part: [one["name"] for one in self.RG_ROLLOUT[part].where()] for part in parts}
