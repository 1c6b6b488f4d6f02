"""200 secrets in 12 shapes, and 200 harmless values: what redaction has to hide, and what it has to leave alone.

The secrets are made from templates with a fixed seed; none of them is or was a secret of anybody.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_random = random.Random(16)
_WORD = string.ascii_letters + string.digits


def _chars(count: int, alphabet: str = _WORD) -> str:
    return "".join(_random.choices(alphabet, k=count))


def _password() -> str:
    return f"{_chars(6)}{_random.choice('!#%^*+~')}{_chars(5)}"


class Secret(NamedTuple):
    """Something that is shown, and what must not be seen in it."""

    shape: str
    value: Any
    hidden: tuple[str, ...]
    """Pieces of the secret: none of them may be left."""
    kept: tuple[str, ...] = ()
    """The rest of the text, which must stay."""


KEYS = [
    "HF_TOKEN",
    "WANDB_API_KEY",
    "SERPER_KEY",
    "ANTHROPIC_KEY",
    "GITHUB_PAT",
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "DB_PASSWORD",
    "TAVILY_KEY",
    "ACME_SEARCH_KEY",
    "REDIS_PASSWORD",
    "SWANLAB_API_KEY",
    "GITLAB_TOKEN",
    "MYSQL_PWD",
    "AZURE_STORAGE_KEY",
    "client_secret",
    "HF_TOKEN_2",
]
SETTINGS = [
    "api_key",
    "hf_token",
    "password",
    "wandb_api_key",
    "client_secret",
    "access_token",
    "db_password",
    "private_key",
    "openai_key",
    "serper_key",
    "credentials",
    "secret",
    "auth_token",
    "ssh_passphrase",
    "storage_account_key",
    "refresh_token",
    "github_pat",
]


def _environment() -> Iterator[Secret]:
    forms = [
        "PATH=/usr/bin\n{key}={secret}\nHOME=/root",
        "{key}={secret} python train.py lr=1",
        "export {key}={secret}; python train.py",
        'declare -x {key}="{secret} {more}"\ndeclare -x HOME="/root"',
        "environ({{'HOME': '/root', '{key}': '{secret}'}})",
        "os.environ['{key}'] = '{secret}'  # set by hand",
    ]
    rests = [("HOME=/root",), ("python train.py lr=1",), ("python train.py",), ("HOME",), ("HOME",), ("set by hand",)]
    for at, key in enumerate(KEYS):
        secret, more = _chars(20), _chars(8)
        text = forms[at % 6].format(key=key, secret=secret, more=more)
        yield Secret("environment", text, (secret, more) if more in text else (secret,), rests[at % 6])


def _command_line() -> Iterator[Secret]:
    flags = [
        "--hf-token",
        "--token",
        "--api-key",
        "--logger.wandb.key",
        "-token",
        "--password",
        "--wandb_key",
        "--auth",
    ]
    for at, flag in enumerate([*flags, *flags]):
        secret = _chars(12) if at % 2 else _password()
        words = ["t.py", flag, secret, "--lr", "1"] if at < 8 else ["t.py", f"{flag}={secret}", "--lr", "1"]
        value: Any = [words, " ".join(words), f"Command '{words}' failed: --lr"][at % 3]
        yield Secret("command line", value, (secret,), ("--lr",))
    yield Secret("command line", "curl -u me:s3cr3tpw1 https://h/x", ("s3cr3tpw1",), ("curl -u me:", "https://h/x"))


def _yaml() -> Iterator[Secret]:
    forms = [
        "lr: 1\n{key}: {secret}\nseed: 2",
        "model:\n  {key}: '{secret}'\n  seed: 2",
        "{{lr: 1, {key}: {secret}, seed: 2}}",
        "- {key}: {secret} {more}  # the seed: 2",
        "{key}: |\n  {secret}\n  {more}\nseed: 2",
        "{key}:\n  - {secret}\n  - {more}\nseed: 2",
    ]
    for at, key in enumerate(SETTINGS):
        secret, more = _chars(14), _chars(9)
        text = forms[at % 6].format(key=key, secret=secret, more=more)
        yield Secret("yaml", text, (secret, more) if more in text else (secret,), ("seed: 2",))


def _json() -> Iterator[Secret]:
    for at, key in enumerate(SETTINGS):
        secret = _password()
        inner = {"lr": 1, key: [secret, [secret, "x"], {"id": secret}][at % 3] if at > 10 else secret, "seed": 2}
        text = json.dumps(inner, indent=at % 2 * 2 or None)
        text = json.dumps({"log": text}) if at % 4 == 3 and at <= 10 else text
        yield Secret("json", text, (secret,), ("seed", "2"))


def _python() -> Iterator[Secret]:
    forms: list[Callable[[str, str], str]] = [
        lambda key, secret: repr({"lr": 1, key: secret, "seed": 2}),
        lambda key, secret: f"Config(lr=1, {key}={secret!r}, seed=2)",
        lambda key, secret: f"Config({key}=b'{secret}', seed=2)",
        lambda key, secret: repr({key: ("me", secret), "seed": 2}),
        lambda key, secret: f"Namespace({key}={secret}, seed=2)",
        lambda key, secret: f"KeyError: \"{{'{key}': b'{secret}', 'seed': 2}}\"",
    ]
    for at, key in enumerate(SETTINGS):
        secret = _chars(15)
        yield Secret("python", forms[at % 6](key, secret), (secret,), ("seed",))


def _headers() -> Iterator[Secret]:
    names = [
        "Authorization: Basic",
        "authorization: Bearer",
        "Proxy-Authorization: Basic",
        "X-Api-Key:",
        "Cookie: sid =",
    ]
    names += ["Authorization: Digest", "Authorization: token", "Api-Key:", "X-Auth-Token:"]
    for at, name in enumerate([*names, *names[:7]]):
        secret = base64.b64encode(_chars(18).encode()).decode()
        text = f"{name} {secret}" if at < 6 else f"curl -H '{name} {secret}' https://h/seed"
        text = f"HTTP/1.1 401\n{text}\nAccept: seed" if at % 2 else f"{text}\nAccept: seed"
        yield Secret("headers", text, (secret,), ("seed",))


def _url_users() -> Iterator[Secret]:
    schemes = ["redis", "https", "postgresql+psycopg", "mongodb", "amqp", "http", "rediss", "s3"]
    for at, scheme in enumerate([*schemes, *schemes]):
        secret = _password().replace("#", "@")
        user = "" if scheme == "redis" else "me"
        yield Secret(
            "url user", f"no answer from {scheme}://{user}:{secret}@h:6379/{at} in 2 s", (secret,), ("h:6379", "in 2 s")
        )


def _url_queries() -> Iterator[Secret]:
    names = ["sig", "token", "api_key", "access_token", "X-Amz-Signature", "X-Amz-Security-Token", "key", "signature"]
    for at, name in enumerate([*names, *names]):
        secret = _chars(24) + "%3D"
        link = f"https://h.blob.core/x?sv=2024&{name}={secret}" + ("&se=9" if at % 2 else "")
        yield Secret(
            "url query",
            f"GET {link} gave 403" if at < 8 else repr({"url": link, "to": "gave 403"}),
            (secret,),
            ("sv=2024", "gave 403"),
        )


def _known() -> Iterator[Secret]:
    made = [
        f"hf_{_chars(34)}", f"ghp_{_chars(36)}", f"github_pat_{_chars(40)}", f"glpat-{_chars(20)}", f"sk-{_chars(40)}",
        f"sk-ant-api03-{_chars(40)}", f"xoxb-{_chars(12, string.digits)}-{_chars(24)}", f"AKIA{_chars(16, string.ascii_uppercase)}",
        f"AIza{_chars(35)}", f"gsk_{_chars(40)}", f"npm_{_chars(36)}", f"pypi-{_chars(60)}", f"nvapi-{_chars(50)}",
        f"ya29.{_chars(50)}", f"SG.{_chars(22)}.{_chars(43)}", f"sk_live_{_chars(24)}", f"tvly-{_chars(30)}",
    ]  # fmt: skip
    for at, secret in enumerate(made):
        yield Secret(
            "known prefix",
            f"login with {secret} failed" if at % 2 else [f"x={secret}", "failed"],
            (secret,),
            ("failed",),
        )


def _jwts() -> Iterator[Secret]:
    for at in range(17):
        parts = [
            base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
            for text in ('{"alg":"HS256"}', f'{{"sub":"{_chars(9)}"}}')
        ]
        secret = ".".join([*parts, _chars(43)])
        yield Secret(
            "jwt",
            [f"got {secret} for step 3", {"body": secret, "n": "step 3"}, f"x?jwt={secret} step 3"][at % 3],
            (secret, parts[1]),
            ("step 3",),
        )


def _pem() -> Iterator[Secret]:
    kinds = ["RSA ", "", "EC ", "OPENSSH ", "ENCRYPTED "]
    for at in range(16):
        lines = [_chars(64, _WORD + "+/") for _ in range(3)]
        block = f"-----BEGIN {kinds[at % 5]}PRIVATE KEY-----\n" + "\n".join(lines)
        block += "" if at % 4 == 3 else f"\n-----END {kinds[at % 5]}PRIVATE KEY-----"
        value: Any = [
            f"read {block}\n, step 3",
            {"file": block, "n": "step 3"},
            json.dumps({"pem": block, "n": "step 3"}),
            f"SSH_KEY={block}\n\nstep 3",
        ][at // 4]
        yield Secret("pem", value, tuple(lines), ("step 3",))


def _structures() -> Iterator[Secret]:
    for at, key in enumerate(KEYS):
        secret = _password()
        value: Any = [
            {"env": {key: secret, "n": "step 3"}},
            {"env": [{"name": key, "value": secret}, {"name": "N", "value": "step 3"}]},
            [{"n": ["step 3", {key: [secret]}]}],
            {"runtime_env": {"env_vars": {key: secret}}, "n": ("step 3",)},
        ][at % 4]
        yield Secret("structure", value, (secret,), ("step 3",))


SECRETS: list[Secret] = [
    *_environment(), *_command_line(), *_yaml(), *_json(), *_python(), *_headers(), *_url_users(), *_url_queries(),
    *_known(), *_jwts(), *_pem(), *_structures(),
]  # fmt: skip

_HARMLESS_TEXTS = """
max_tokens=512
tokenizer.path=/models/llama/tokenizer.json
monkey=1
key_padding_mask
key_padding_mask=None
data.continuous_token.enable=True
+data.continuous_token.enable=true lr=1
++data.continuous_token.mode=fast seed=2
pad_token_id: 0
eos_token: <|endoftext|>
eos_token_id=[128001, 128009]
bos_token="<s>" unk_token="<unk>"
actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
actor_rollout_ref.rollout.max_num_batched_tokens=8192
actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct
actor_rollout_ref.actor.loss_agg_mode=token-mean
data.prompt_key=prompt data.reward_fn_key=data_source
data.image_key=images data.video_key=videos
--input_key question --label_key answer
--prompt_key prompt --max_tokens 512 --lr 1e-6
--tokenizer_path /models/tok --seed 7
SORT_KEY=name PROMPT_KEY=prompt
CACHE_KEY=step-3 PRIMARY_KEY=id
key=value
key: value
keys: [a, b, c]
sort key: name, ascending
public_key=ssh-ed25519
token_level_rewards.sum(-1)
token_level_scores: 0.25
num_tokens: 1024, n_tokens: 2048
tokens/s: 1532.4
tokens per second: 1532.4
special_tokens_map.json
stop_token_ids=[1, 2]
image_token=<image> video_token=<video>
pass@1=0.31 pass@8=0.62
pass_rate: 0.75
forward_pass=3.2 ms backward_pass=6.1 ms
bypass_mode=True
first pass: 3.2 s, second pass: 2.9 s
PWD=/work OLDPWD=/home/me
author: Ada Lovelace
authors=2
authority=example.org
token_file=/run/secrets/hf
HF_TOKEN_PATH=/root/.cache/huggingface/token
HF_HOME=/root/.cache/huggingface
password_file=/etc/pw
auth_type=basic
auth_url=https://login.example.org/oauth
secret_name=training-secrets
ssh_key_path=~/.ssh/id_ed25519
credentials_file: /etc/aws
HF_TOKEN= python train.py
HF_TOKEN='' WANDB_API_KEY="" python train.py
HF_TOKEN=${HF_TOKEN} python train.py
--hf-token "${HF_TOKEN}" --lr 1
wandb.api_key=null trainer.logger=console
use_auth=false token=None
{"token": null, "use_auth": true, "secret": ""}
{'token': None, 'password': '', 'lr': 1}
{"max_tokens": 512, "eos_token": "</s>", "stop": ["a", "b"]}
{'pad_token_id': 0, 'tokenizer': 'Qwen/Qwen2.5-7B'}
{"key": "prompt", "keys": ["a", "b"]}
SamplingParams(n=8, max_tokens=512, stop_token_ids=[], skip_special_tokens=True)
TokenizerConfig(path='gpt2', pad_token='<pad>')
git commit 3f2b8c1d9e0a4b5c6d7e8f90a1b2c3d4e5f60718
revision=3f2b8c1d9e0a4b5c6d7e8f90a1b2c3d4e5f60718
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
run_id=0f8fad5bd9cb469fa16570867728950e
run 7c9e6679-7425-40de-944b-e07fc1f90ae7
actor id 4d3a9f0c2b1e8d7f6a5c4b3a01000000
node 28238fd4f1c2de3ad2c7bb8ca3c4ce1b8d3a8f1dbd0d0b6f8c8ea3a1
etag "33a64df551425fcc55e4d42a148795d9f25f89d4"
step 118 of 400
step=118 loss=0.693147 lr=1e-06
global_step_118/actor/model_world_size_8_rank_3.pt
/data/checkpoints/global_step_118
s3://bucket/checkpoints/step-118
gs://bucket/data/train.parquet
hdfs://nn:8020/user/me/train.parquet
file:///tmp/dlrl/context.db
sqlite:///var/lib/dlrl/context.db
redis://10.0.0.7:6379/0
redis://user:@host
ssh://git@github.com/org/repo
git@github.com:org/repo.git
https://github.com/org/repo/pull/17
https://host:8080/path?mail=a@b
https://host/search?q=tokenizer&page=2
http://10.0.0.7:8265/#/jobs
https://huggingface.co/Qwen/Qwen2.5-7B-Instruct/resolve/main/tokenizer.json
10.0.0.7:6379
ray://head:10001
tcp://127.0.0.1:29500
meta-llama/Llama-3.1-8B-Instruct
deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
Qwen/Qwen3-30B-A3B-Instruct-2507
openai/gpt-oss-120b
sk-learn 1.5.0
hf_transfer is on
hf_config.json
github_patches=3
npm_config_cache=/tmp
AIza is a prefix
eyJ is how a JWT begins
-----BEGIN CERTIFICATE-----
-----BEGIN PUBLIC KEY-----
the basic idea of bearer authentication
Basic understanding of PPO
docker run --user 1000:1000 image
docker run -u 1000:1000 -e LR=1 image
curl -u me https://host
secretary=Ada compass=north turkey=1 keyboard=us
workload 'actor-3' sent no report for 42 s (limit 30 s); last call 'update' at step 118 on node 10.0.0.7
role 'rollout' has total=3 and per_node=2; total must be a multiple of per_node
the plan needs 8 GPU, the cluster has 6; lower node_num or device_per_node, or add nodes
framework 'verl' is registered but verl is not installed; run: pip install 'dlrl[verl]'
job context has schema 3, this dlrl reads up to 2; resume with a newer dlrl
unknown framework 'verI', did you mean 'verl'? registered: openrlhf, verl
2 problems in the job:\n  - role 'actor' has total=0\n  - role 'critic' has per_node=3
'+data.continuous_token.enable=True' is unknown; 'lr' must be a number, not 'x'
'data.max_tokens=x' is no number; 'data.prompt_key' is missing
job 'ppo' failed: KeyError: 'token_level_scores'
job 'ppo' is already running on the cluster at 10.0.0.7:6379; choose another name
KeyError: 'prompt_key'
KeyError: "key 'password' is not in struct"
ConfigAttributeError: Key 'token' is not in struct
TypeError: login() got an unexpected keyword argument 'token'
TypeError: __init__() missing 1 required positional argument: 'api_key'
ValueError: unexpected token: '}' at line 3
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
SyntaxError: invalid token at position 3
the password: it was not given
the option hf_token: must be a string
no token: log in first
give --hf-token or set HF_TOKEN
pass --token to log in, or --password for a prompt
the flag --api-key is not known
say --token when the model is gated
set WANDB_API_KEY; see docs/how-to/wandb.md
HF_TOKEN is not set; the model is gated
'HF_TOKEN', 'WANDB_API_KEY' and 'SERPER_KEY' are set
environment variables: HF_TOKEN, OPENAI_API_KEY
Ray's token authentication is off
the token budget is 4096 per step
4096 tokens in 3.2 s (1280 tokens/s), 8 secrets of a good run
the secret of a good reward is a good verifier
a key of the mapping is no text
key 3 of 7 is missing in the state: 'model.layers.0.self_attn.k_proj.weight'
model.layers.0.self_attn.q_proj.weight torch.Size([4096, 4096])
query_key_value.weight: torch.bfloat16
q_key=3 k_key=4
kv_cache_dtype=fp8 enable_prefix_caching=True
attention_mask, position_ids, key_padding_mask = batch
loss_mask.sum() / token_count
for token in tokens:
if token == eos_token:
assert key in mapping
def forward(self, input_ids, attention_mask=None, past_key_values=None):
past_key_values=None use_cache=False
File "/data/verl/trainer/ppo/ray_trainer.py", line 118, in fit
  File "/usr/lib/python3.12/json/decoder.py", line 355, in raw_decode
Traceback (most recent call last):
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error
CUDA_VISIBLE_DEVICES=0,1,2,3
NCCL_SOCKET_IFNAME=eth0 MASTER_ADDR=10.0.0.7 MASTER_PORT=29500
PYTHONPATH=/data:/data/plugins
PATH=/usr/local/bin:/usr/bin:/bin
LD_LIBRARY_PATH=/usr/local/cuda/lib64
DLRL_STORE=sqlite:///tmp/context.db
DLRL_PLUGINS=verl,openrlhf
TOKENIZERS_PARALLELISM=false
VLLM_ATTENTION_BACKEND=FLASH_ATTN
python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=8
bash examples/train_ppo_ray.sh
pip install 'dlrl[verl]'
2026-11-18 15:09:38,120 INFO worker.py:1821 -- Connected to Ray cluster.
(WorkerDict pid=4711) [rank3] compute_log_prob took 3.21 s
reward/mean=0.25 reward/std=0.1 response_length/mean=812.5
ratio_of_valid_token=0.98 rollout_corr/chi2_token=0.1
actor/entropy:0.31 - actor/kl_loss:0.002 - timing_s/gen:12.1
q_sig=0.5 sigma=0.1 code=3
epoch 3, batch 17: 512 prompts, 4096 responses
3.14159
0
""".strip("\n").split("\n")
_HARMLESS_VALUES: list[Any] = [
    {"max_tokens": 512, "pad_token_id": 0, "prompt_key": "prompt"},
    {"data": {"key": "x"}, "keys": ["a", "b"]},
    {"tokenizer": {"path": "gpt2", "eos_token": "</s>"}},
    {"data": {"continuous_token": {"enable": True, "mode": "fast"}}},
    {"token": None, "password": "", "secret": [], "auth": False},
    {"pass@1": 0.31, "forward_pass": 3},
    [{"name": "LR", "value": "1e-6"}, {"name": "actor", "value": 3}],
    ["--max_tokens", "512", "--prompt_key", "prompt"],
    ["--token", "--lr", "1"],
    {"sha": "3f2b8c1d9e0a4b5c6d7e8f90a1b2c3d4e5f60718"},
]
HARMLESS: list[Any] = [text.replace("\\n", "\n") for text in _HARMLESS_TEXTS] + _HARMLESS_VALUES
