"""The processes of the frameworks that can be run."""

from __future__ import annotations

import subprocess

from acme_rl.roles import AcmeRollout, AcmeTrainer

from dlrl_core import trainer_invocation


class ForgetfulRollout(AcmeRollout):
    def __init__(self, master_handle, config):
        super().__init__(master_handle, config)
        self.calls = 0
        # In a session of its own, it is not ended with us.
        self.engine = subprocess.Popen(["sleep", "20"], start_new_session=True)

    @trainer_invocation(post_func=lambda shards: [sample for shard in shards for sample in shard])
    def generate(self, seeds, mean):
        self.calls += 1
        return super().generate([seed + self.calls for seed in seeds], mean)


class UncommittedTrainer(AcmeTrainer):
    def commit(self, step, **progress):
        pass
